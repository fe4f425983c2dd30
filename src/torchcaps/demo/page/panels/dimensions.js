// Dimensions: change one dimension of a capsule and watch the reconstruction.

import { announce, ask, latest } from "../api.js";
import { networkChoice } from "../choice.js";
import { make, slider } from "../dom.js";
import { isInk } from "../drawing.js";
import { decode, paint, single, split } from "../images.js";

const STEPS = 11;

export function dimensionsPanel({ models, drawing, digits }) {
  const able = models.filter((info) => info.draws);
  const element = make("div", { class: "panel" });
  if (!able.length) {
    element.append(make("p", { class: "lead" }, "None of these networks has a decoder."));
    return { id: "dimensions", title: "Dimensions", element, open() {}, changed() {} };
  }
  let pose = null;
  let label = 0;
  let moves = [];
  let rows = [];

  const seen = make("canvas", { role: "img", "aria-label": "Network input" });
  const drawn = make("canvas", { role: "img", "aria-label": "Reconstruction" });
  const caption = make("figcaption", {}, "reconstruction");
  const grid = make("div", { class: "dimensions" });
  const reset = make("button", { type: "button", click: () => level() }, "Reset");
  const choice = networkChoice(able, models, "Capsule", {
    switched() {
      build();
      changed();
    },
    picked: () => update(),
  });
  element.append(
    make("p", { class: "lead" }, `Each dimension of a capsule encodes a way in which ${digits ? "its digit" : "its class"} varies. A strip shows reconstructions `,
      "over the range of one dimension; its slider changes only that dimension."),
    choice.element,
    make("div", { class: "bench-top" },
      make("figure", { class: "small" }, seen, make("figcaption", {}, "input")),
      make("figure", {}, drawn, caption), reset),
    grid,
  );
  build();

  /** Build sliders and strips for the selected network. */
  function build() {
    const { pose_size: size, reach } = choice.info;
    moves = new Array(size).fill(0);
    rows = moves.map((_, number) => {
      const strip = make("canvas", { class: "strip", "aria-hidden": "true" });
      const show = (value) => (value > 0 ? "+" : "") + value.toFixed(2);
      const range = { min: -reach, max: reach, step: reach / 50, value: 0, show };
      const control = slider(`Dimension ${number + 1}`, range, (value) => {
        moves[number] = value;
        redraw();
      });
      return { strip, control, element: make("div", { class: "dimension" }, strip, control.element) };
    });
    grid.replaceChildren(...rows.map((row) => row.element));
  }

  function level() {
    moves.fill(0);
    rows.forEach((row) => row.control.set(0));
    redraw();
  }

  const update = latest(async () => {
    if (drawing.empty) return;
    const { info } = choice;
    const answer = await ask("/api/predict", { ...drawing.request(info), include: ["pose", "image"] });
    pose = answer.pose;
    label = choice.label ?? answer.label;
    choice.mark(label);
    const ink = isInk(info);
    paint(seen, single(answer.image), { ink });
    caption.textContent = `reconstruction from capsule ${info.class_names[label]}`;
    const request = { model: info.name, pose, label, sweep: { reach: info.reach, steps: STEPS } };
    const swept = await ask("/api/reconstruct", request);
    const images = split(decode(swept.images));
    rows.forEach((row, number) => paint(row.strip, images.slice(number * STEPS, (number + 1) * STEPS), { ink }));
    await redraw();
  });

  const redraw = latest(async () => {
    if (!pose) return;
    const { info } = choice;
    const moved = pose.map((row, number) => (number === label ? row.map((value, place) => value + (moves[place] ?? 0)) : row));
    const answer = await ask("/api/reconstruct", { model: info.name, pose: moved, label });
    paint(drawn, single(answer.images), { ink: isInk(info) });
    const changes = moves.filter((move) => move !== 0).length;
    announce(`Capsule ${info.class_names[label]} reconstructed${changes ? ` with ${changes} dimensions changed` : ""}`);
  });

  function changed() {
    moves.fill(0);
    rows.forEach((row) => row.control.set(0));
    choice.label = null;
    update();
  }
  return { id: "dimensions", title: "Dimensions", element, open: update, changed };
}
