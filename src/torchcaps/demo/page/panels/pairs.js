// Two digits: drawn over each other, and taken apart again.

import { announce, ask, latest } from "../api.js";
import { aboutOf, bars, titleOf } from "../bars.js";
import { make } from "../dom.js";
import { colourOf, paint, single } from "../images.js";

export function pairsPanel({ models, drawing }) {
  const info = models.find((each) => each.labels_per_image === 2 && each.draws);
  const element = make("div", { class: "panel" });
  if (!info) {
    element.append(make("p", { class: "lead" }, "No network for two digits is loaded. Train one with ",
      make("code", {}, "torchcaps train capsnet --data multimnist"), " and name its folder."));
    return { id: "pairs", title: "Two digits", element, open() {}, changed() {} };
  }
  const picture = (words) => {
    const canvas = make("canvas", { role: "img", "aria-label": words });
    const caption = make("figcaption", {}, words);
    return { canvas, caption, element: make("figure", {}, canvas, caption) };
  };
  const [seen, both, first, second] = ["seen", "taken apart", "first", "second"].map(picture);
  const chart = bars(info.class_names);
  const words = make("p", { class: "finding" });
  element.append(
    make("p", { class: "lead" }, "Draw two digits over each other on the pad, or choose a pair below it. Each of the two strongest ",
      "capsules draws its own digit without the other."),
    make("div", { class: "apart" }, seen.element, both.element, first.element, second.element),
    words,
    make("article", { class: "card answer" }, make("header", {}, make("h3", {}, titleOf(info, models)), make("p", { class: "about" }, aboutOf(info))), chart.element),
  );

  const update = latest(async () => {
    if (drawing.empty) return void chart.show(null, []);
    const answer = await ask("/api/predict", drawing.question(info));
    const order = answer.scores.map((_, label) => label).sort((a, b) => answer.scores[b] - answer.scores[a]).slice(0, 2);
    paint(seen.canvas, single(answer.image));
    chart.show(answer.scores, order);
    const colours = [colourOf("--accent"), colourOf("--second")];
    const drawn = await Promise.all(order.map((label) => ask("/api/reconstruct", { model: info.name, pose: answer.pose, label })));
    const images = drawn.map((each) => single(each.images));
    [first, second].forEach((each, number) => {
      paint(each.canvas, images[number], colours[number]);
      each.caption.textContent = `${info.class_names[order[number]]}, ${answer.scores[order[number]].toFixed(2)}`;
    });
    overlay(both.canvas, images, colours);
    words.textContent = `Sees ${order.map((label) => info.class_names[label]).join(" and ")}.`;
    announce(words.textContent);
  });
  return { id: "pairs", title: "Two digits", element, open: update, changed: update };
}

/** Two drawings on one canvas, each in its colour. */
function overlay(canvas, images, colours) {
  paint(canvas, images[0], colours[0]);
  const other = document.createElement("canvas");
  paint(other, images[1], colours[1]);
  canvas.getContext("2d").drawImage(other, 0, 0);
}
