// Selection of a network and of one of its classes.

import { titleOf } from "./bars.js";
import { chips, chooser, make } from "./dom.js";

/** A list of networks, and the classes of the selected one; no label means the predicted class. */
export function networkChoice(able, models, words, { switched, picked }) {
  let classes;
  const networks = chooser("Network", able.map((each) => [each.name, titleOf(each, models)]), (name) => {
    take(able.find((each) => each.name === name));
    switched();
  });
  const element = make("div", { class: "controls" }, networks.element);
  const choice = { element, info: null, label: null, mark: (label) => classes.choose(label) };

  function take(info) {
    classes?.element.remove();
    classes = chips(words, info.class_names.map((name, number) => [number, name]), (number) => {
      choice.label = number;
      picked();
    });
    element.append(classes.element);
    Object.assign(choice, { info, label: null });
  }
  take(able[0]);
  return choice;
}
