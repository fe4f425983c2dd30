// Transform: rotate, shear, scale and shift the drawing, and see how predictions and poses change.

import { announce, ask, latest } from "../api.js";
import { answerCard } from "../bars.js";
import { poseChart } from "../chart.js";
import { make, slider } from "../dom.js";
import { isInk, sideBySide } from "../drawing.js";
import { paint, single } from "../images.js";

const degrees = (value) => `${value}°`;
const pixels = (value) => `${value} px`;
const CHANGES = {
  rotate: ["Rotate", { min: -90, max: 90, step: 1, value: 0, show: degrees }],
  shear: ["Shear", { min: -45, max: 45, step: 1, value: 0, show: degrees }],
  scale: ["Scale", { min: 0.5, max: 1.6, step: 0.02, value: 1, show: (value) => `× ${value.toFixed(2)}` }],
  shift_x: ["Shift right", { min: -10, max: 10, step: 0.5, value: 0, show: pixels }],
  shift_y: ["Shift down", { min: -10, max: 10, step: 0.5, value: 0, show: pixels }],
};

export function transformPanel({ models, drawing, digits }) {
  const shown = sideBySide(models);
  const noun = digits ? ["a digit", "digits"] : ["an object", "images"];
  const transform = {};
  const sliders = Object.entries(CHANGES).map(([name, [label, range]]) => {
    transform[name] = range.value;
    const control = slider(label, range, (value) => {
      transform[name] = value;
      update.forEach((each) => each());
    });
    return { name, control, start: range.value };
  });
  const preview = make("canvas", { role: "img", "aria-label": "Transformed drawing" });
  const reset = make("button", { type: "button", click: level }, "Reset");
  const cards = shown.map((info) => {
    const chart = make("div", { class: "pose-place" });
    const words = make("p", { class: "about" });
    return { ...answerCard(info, models, ...(info.pose_size ? [chart, words] : [])), chart, words };
  });
  const element = make("div", { class: "panel" },
    make("p", { class: "lead" }, `Capsules are meant to represent the pose of ${noun[0]} separately from its class: when it is `,
      "rotated or sheared, the prediction should stay and the pose should change. These networks may have been trained ",
      `on upright ${noun[1]} only. Marks on the bars show the scores before the transform.`),
    make("div", { class: "workbench" },
      make("div", { class: "pair" }, make("figure", {}, preview, make("figcaption", {}, "network input")),
        make("div", { class: "sliders" }, ...sliders.map(({ control }) => control.element)), reset),
      make("div", { class: "cards single" }, ...cards.map((card) => card.element))));

  const upright = shown.map(() => null);
  const said = new Map();
  const update = shown.map((info, number) =>
    latest(async () => {
      const card = cards[number];
      if (drawing.empty) return void card.show(null);
      const request = { ...drawing.request(info), include: ["scores", "pose", "image"] };
      upright[number] ??= await ask("/api/predict", request);
      const answer = await ask("/api/predict", { ...request, transform });
      const { label } = upright[number];
      if (number === 0) paint(preview, single(answer.image), { ink: isInk(info) });
      said.set(number, card.show(answer.scores, upright[number].scores));
      announce([...said.values()].join("; "));
      if (!answer.pose) return;
      const [before, after] = [upright[number].pose[label], answer.pose[label]];
      card.chart.replaceChildren(...poseChart(before, after, info.class_names[label]));
      const moved = Math.hypot(...after.map((value, place) => value - before[place])) / Math.hypot(...before);
      card.words.textContent = `Capsule ${info.class_names[label]} moved by ${(100 * moved).toFixed(0)} % of its length.`;
    }),
  );

  function level() {
    for (const { name, control, start } of sliders) {
      transform[name] = start;
      control.set(start);
    }
    update.forEach((each) => each());
  }

  function changed() {
    upright.fill(null);
    update.forEach((each) => each());
  }
  return { id: "transform", title: "Transform", element, open: changed, changed };
}
