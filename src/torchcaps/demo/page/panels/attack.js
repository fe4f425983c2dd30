// Attack: adversarial perturbations and their effect on each prediction.

import { announce, ask, latest } from "../api.js";
import { answerCard, titleOf } from "../bars.js";
import { chips, make, slider } from "../dom.js";
import { isInk, sideBySide } from "../drawing.js";
import { paint, paintNoise, single } from "../images.js";

const METHODS = [["fgsm", "FGSM: one step"], ["pgd", "PGD: many steps"]];

export function attackPanel({ models, drawing }) {
  const shown = sideBySide(models);
  let attack = "fgsm";
  let epsilon = 0.2;
  const method = chips("Attack", METHODS, (value) => {
    attack = value;
    update.forEach((each) => each());
  });
  method.choose(attack);
  const strength = slider("Epsilon: maximum change of a pixel", { min: 0, max: 0.5, step: 0.01, value: epsilon, show: (value) => value.toFixed(2) }, (value) => {
    epsilon = value;
    update.forEach((each) => each());
  });
  const picture = (words) => {
    const canvas = make("canvas", { role: "img", "aria-label": words });
    return { canvas, element: make("figure", {}, canvas, make("figcaption", {}, words)) };
  };
  const cards = shown.map((info) => {
    const [noise, moved] = [picture("perturbation"), picture("attacked")];
    const words = make("p", { class: "finding" });
    const pictures = make("div", { class: "attacked" }, noise.element, moved.element, words);
    return { ...answerCard(info, models, pictures), noise, moved, words };
  });
  const element = make("div", { class: "panel" },
    make("p", { class: "lead" }, "The attack uses the gradients of each network to change its prediction. Marks show the scores ",
      "before the attack."),
    make("div", { class: "controls" }, method.element, strength.element),
    make("div", { class: "cards" }, ...cards.map((card) => card.element)));

  const said = new Map();
  const update = shown.map((info, number) =>
    latest(async () => {
      const card = cards[number];
      if (drawing.empty) return void card.show(null);
      card.element.setAttribute("aria-busy", "true");
      try {
        const found = await ask("/api/attack", { ...drawing.request(info), attack, epsilon });
        card.show(found.after, found.before);
        paint(card.moved.canvas, single(found.image), { ink: isInk(info) });
        paintNoise(card.noise.canvas, single(found.noise));
        const names = [found.before, found.after].map((scores) => info.class_names[scores.indexOf(Math.max(...scores))]);
        card.words.textContent = found.fooled ? `Attack succeeded: ${names[0]} became ${names[1]}.` : `Still ${names[1]}.`;
        card.element.classList.toggle("fooled", found.fooled);
        said.set(number, `${titleOf(info, models)}: ${card.words.textContent}`);
        announce([...said.values()].join(" "));
      } finally {
        card.element.removeAttribute("aria-busy");
      }
    }),
  );
  const changed = () => update.forEach((each) => each());
  return { id: "attack", title: "Attack", element, open: changed, changed };
}
