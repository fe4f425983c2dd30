// Small helpers for building the page.

/** An element with attributes and children; functions become event listeners, null and false are skipped. */
export function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(key, value);
    else if (value !== null && value !== false) element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

/** A labeled slider that shows its value; `show` formats a number. */
export function slider(label, { min, max, step, value, show = String }, changed) {
  const number = make("span", { class: "value", "aria-hidden": "true" }, show(value)); // an output would take the label
  const input = make("input", { type: "range", min, max, step, value, "aria-valuetext": show(value) });
  const set = (to) => {
    input.value = to;
    update();
  };
  const update = () => {
    number.textContent = show(input.valueAsNumber);
    input.setAttribute("aria-valuetext", show(input.valueAsNumber));
  };
  input.addEventListener("input", () => {
    update();
    changed(input.valueAsNumber);
  });
  const element = make("label", { class: "slider" }, make("span", {}, label), number, input);
  return { element, input, set };
}

/** A labeled select element. `options` are pairs of value and text. */
export function chooser(label, options, changed) {
  const items = options.map(([value, text]) => make("option", { value }, text));
  const select = make("select", { change: () => changed(select.value) }, ...items);
  return { element: make("label", { class: "chooser" }, make("span", {}, label), select), select };
}

let groups = 0;

/** A group of toggle buttons; radio buttons, so that arrow keys work. */
export function chips(label, options, changed) {
  const name = `chips-${groups++}`;
  const inputs = options.map(([value, text]) => {
    const input = make("input", { type: "radio", name, value, change: () => changed(value) });
    return { input, element: make("label", { class: "chip" }, input, make("span", {}, text)) };
  });
  const kind = options.every(([, text]) => text.length < 3) ? "chips short" : "chips";
  const element = make("fieldset", { class: kind }, make("legend", {}, label), ...inputs.map((each) => each.element));
  const choose = (value) => inputs.forEach(({ input }) => (input.checked = input.value === String(value)));
  return { element, choose };
}
