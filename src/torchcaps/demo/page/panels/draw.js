// Draw: every network's answer, moving with the pen.

import { announce, ask, latest } from "../api.js";
import { answerCard } from "../bars.js";
import { make } from "../dom.js";
import { sideBySide } from "../drawing.js";

export function drawPanel({ models, drawing }) {
  const shown = sideBySide(models);
  const cards = shown.map((info) => answerCard(info, models));
  const element = make("div", { class: "panel" });
  element.append(
    make("p", { class: "lead" }, "A capsule's length says how sure the network is that its class is there. Bars follow the pen."),
    make("div", { class: "cards" }, ...cards.map((card) => card.element)),
  );
  const said = new Map();
  const update = shown.map((info, number) =>
    latest(async () => {
      const answer = drawing.empty ? null : await ask("/api/predict", drawing.question(info));
      said.set(number, cards[number].show(drawing.empty ? null : answer.scores));
      announce(drawing.empty ? "The pad is empty" : [...said.values()].join("; "));
    }),
  );
  const changed = () => update.forEach((each) => each());
  return { id: "draw", title: "Draw", element, open: changed, changed };
}
