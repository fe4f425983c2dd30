// Light, dark or system theme.

const NAMES = { system: "system", light: "light", dark: "dark" };
const ORDER = Object.keys(NAMES);

/** Let a button cycle through the themes; `changed` is called when the colors change. */
export function themes(button, changed) {
  let chosen = localStorage.getItem("theme");
  if (!ORDER.includes(chosen)) chosen = "system";
  function apply() {
    if (chosen === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = chosen;
    button.querySelector("span").textContent = NAMES[chosen];
  }
  button.addEventListener("click", () => {
    chosen = ORDER[(ORDER.indexOf(chosen) + 1) % ORDER.length];
    localStorage.setItem("theme", chosen);
    apply();
    changed();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", changed);
  apply();
}
