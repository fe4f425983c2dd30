// The panels as tabs: arrow keys switch between them, and the URL keeps the open one.

import { make } from "./dom.js";

/** `panels`: {id, title, element, open()}. `opened` is called with a panel before it opens. */
export function tabs(list, place, panels, opened) {
  const buttons = panels.map((panel) => {
    const button = make(
      "button",
      { type: "button", role: "tab", id: `tab-${panel.id}`, "aria-controls": `panel-${panel.id}`,
        "data-title": panel.title, click: () => open(panel) },
      panel.title,
    );
    Object.assign(panel.element, { id: `panel-${panel.id}`, hidden: true });
    panel.element.setAttribute("role", "tabpanel");
    panel.element.setAttribute("aria-labelledby", button.id);
    list.append(button);
    place.append(panel.element);
    return button;
  });

  function open(panel) {
    const number = panels.indexOf(panel);
    panels.forEach((each, other) => {
      each.element.hidden = each !== panel;
      buttons[other].setAttribute("aria-selected", String(each === panel));
      buttons[other].tabIndex = each === panel ? 0 : -1;
    });
    // Scroll the row of tabs, not the page.
    list.scrollTo({ left: buttons[number].offsetLeft - list.clientWidth / 2 + buttons[number].offsetWidth / 2 });
    history.replaceState(null, "", `#${panel.id}`);
    current = panel;
    opened(panel);
    panel.open();
  }

  let current = panels[0];
  list.addEventListener("keydown", (event) => {
    const last = panels.length - 1;
    const at = panels.indexOf(current);
    const to = { ArrowRight: at === last ? 0 : at + 1, ArrowLeft: at === 0 ? last : at - 1, Home: 0, End: last }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    open(panels[to]);
    buttons[to].focus();
  });

  const byAddress = () => panels.find((panel) => panel.id === location.hash.slice(1)) ?? panels[0];
  window.addEventListener("hashchange", () => byAddress() !== current && open(byAddress()));
  open(byAddress());
  return { get current() { return current; } };
}
