// Draw: the predictions of all networks, updated while drawing.

import { announce, ask, latest } from "../api.js";
import { answerCard } from "../bars.js";
import { make } from "../dom.js";
import { sideBySide } from "../drawing.js";

export function drawPanel({ models, drawing, digits }) {
  const shown = sideBySide(models);
  const notes = shown.map(() => make("p", { class: "unusual", hidden: true }, "Unlike the training images: do not trust this prediction."));
  const cards = shown.map((info, number) => answerCard(info, models, notes[number]));
  const element = make("div", { class: "panel" });
  element.append(
    make("p", { class: "lead" }, "The length of a capsule is the network's confidence that its class is present. ",
      digits ? "The bars follow the pen." : "Drop, paste or choose an image, or draw one."),
    make("div", { class: "cards" }, ...cards.map((card) => card.element)),
  );
  const said = new Map();
  const update = shown.map((info, number) =>
    latest(async () => {
      const answer = drawing.empty ? null : await ask("/api/predict", { ...drawing.request(info), include: ["scores"] });
      notes[number].hidden = !answer?.unusual;
      said.set(number, cards[number].show(drawing.empty ? null : answer.scores) + (answer?.unusual ? ", unlike the training images" : ""));
      announce(drawing.empty ? "The pad is empty" : [...said.values()].join("; "));
    }),
  );
  const changed = () => update.forEach((each) => each());
  return { id: "draw", title: digits ? "Draw" : "Predict", element, open: changed, changed };
}
