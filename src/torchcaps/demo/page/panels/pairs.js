// Two digits: overlapping digits and their separate reconstructions.

import { announce, ask, latest } from "../api.js";
import { aboutOf, bars, titleOf } from "../bars.js";
import { make } from "../dom.js";
import { colorOf, paint, single } from "../images.js";

export function pairsPanel({ models, drawing }) {
  const info = models.find((each) => each.labels_per_image === 2 && each.draws);
  const element = make("div", { class: "panel" });
  if (!info) {
    element.append(make("p", { class: "lead" }, "No network for two digits is loaded. Train one with ",
      make("code", {}, "torchcaps train capsnet --data multimnist"), " and pass its run directory."));
    return { id: "pairs", title: "Two digits", element, open() {}, changed() {} };
  }
  const picture = (words) => {
    const canvas = make("canvas", { role: "img", "aria-label": words });
    const caption = make("figcaption", {}, words);
    return { canvas, caption, element: make("figure", {}, canvas, caption) };
  };
  const [seen, both, first, second] = ["input", "separated", "first", "second"].map(picture);
  const chart = bars(info.class_names);
  const words = make("p", { class: "finding" });
  element.append(
    make("p", { class: "lead" }, "Draw two digits over each other on the pad, or choose a pair below it. Each of the two longest ",
      "capsules reconstructs its own digit without the other."),
    make("div", { class: "apart" }, seen.element, both.element, first.element, second.element),
    words,
    make("article", { class: "card answer" }, make("header", {}, make("h3", {}, titleOf(info, models)), make("p", { class: "about" }, aboutOf(info))), chart.element),
  );

  const update = latest(async () => {
    if (drawing.empty) return void chart.show(null, []);
    const answer = await ask("/api/predict", { ...drawing.request(info), include: ["scores", "pose", "image"] });
    const order = answer.scores.map((_, label) => label).sort((a, b) => answer.scores[b] - answer.scores[a]).slice(0, 2);
    paint(seen.canvas, single(answer.image), { ink: true });
    chart.show(answer.scores, order);
    const colors = [colorOf("--accent"), colorOf("--second")];
    const drawn = await Promise.all(order.map((label) => ask("/api/reconstruct", { model: info.name, pose: answer.pose, label })));
    const images = drawn.map((each) => single(each.images));
    [first, second].forEach((each, number) => {
      paint(each.canvas, images[number], { ink: true, color: colors[number] });
      each.caption.textContent = `${info.class_names[order[number]]}, ${answer.scores[order[number]].toFixed(2)}`;
    });
    overlay(both.canvas, images, colors);
    words.textContent = `Predicts ${order.map((label) => info.class_names[label]).join(" and ")}.`;
    announce(words.textContent);
  });
  return { id: "pairs", title: "Two digits", element, open: update, changed: update };
}

/** Two reconstructions on one canvas, each in its color. */
function overlay(canvas, images, colors) {
  paint(canvas, images[0], { ink: true, color: colors[0] });
  const other = document.createElement("canvas");
  paint(other, images[1], { ink: true, color: colors[1] });
  canvas.getContext("2d").drawImage(other, 0, 0);
}
