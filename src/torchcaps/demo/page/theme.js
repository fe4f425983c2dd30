// Light, dark, or as the system has it.

const NAMES = { system: "as the system", light: "light", dark: "dark" };
const ORDER = Object.keys(NAMES);

/** Let a button go through the themes; `changed` is called when colours are others. */
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
