// SVG charts, colored by the style sheet.

import { make } from "./dom.js";

const [WIDTH, HEIGHT] = [520, 150];

function svg(name, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

/** Distances between votes and the mean of a class, with a line per iteration; the last is the strongest. */
export function distanceChart({ edges, weights }, name) {
  const most = Math.max(...weights.flat(), 1e-12);
  const reach = edges.at(-1);
  const bins = weights[0].length;
  const lines = weights.map((row, iteration) => {
    const points = row.map((value, bin) => `${((bin + 0.5) / bins) * WIDTH},${HEIGHT - (value / most) * (HEIGHT - 8)}`);
    return svg("polyline", { points: points.join(" "), class: `line line-${weights.length - iteration}` });
  });
  const means = weights.map((row) => {
    const total = row.reduce((sum, value) => sum + value, 0);
    return row.reduce((sum, value, bin) => sum + (value * (edges[bin] + edges[bin + 1])) / 2, 0) / (total || 1);
  });
  const words = `Mean distance between votes and the mean of class ${name}: ${means.map((value) => value.toFixed(2)).join(" → ")}, from the first iteration to the last.`;
  const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT + 22}`, role: "img", "aria-label": words, class: "chart" },
    svg("line", { x1: 0, x2: WIDTH, y1: HEIGHT, y2: HEIGHT, class: "axis" }),
    ...lines,
    svg("text", { x: 0, y: HEIGHT + 17 }, "0"),
    svg("text", { x: WIDTH / 2, y: HEIGHT + 17, "text-anchor": "middle" }, "distance to the mean of the class"),
    svg("text", { x: WIDTH, y: HEIGHT + 17, "text-anchor": "end" }, reach.toPrecision(2)));
  return [make("h3", {}, "Vote distances"), make("p", { class: "about" }, words), picture];
}

/** The dimensions of a capsule as bars before and after a transform, with a legend above and their numbers below. */
export function poseChart(before, after, name) {
  const most = Math.max(...before.map(Math.abs), ...after.map(Math.abs), 1e-12);
  const step = WIDTH / before.length;
  const bar = (value, place, kind) => {
    const height = (Math.abs(value) / most) * 34;
    const width = kind === "was" ? step * 0.72 : step * 0.32;
    return svg("rect", { x: place * step + (step - width) / 2, y: value > 0 ? 36 - height : 36, width, height, rx: 2, class: kind });
  };
  const legend = make("p", { class: "legend" }, `Dimensions of capsule ${name}: `,
    make("span", {}, make("i", { class: "was" }), "before"), " ", make("span", {}, make("i", { class: "is" }), "after"));
  const numbers = make("div", { class: "numbers", "aria-hidden": "true" }, ...before.map((_, place) => make("span", {}, `${place + 1}`)));
  const picture = svg("svg", { viewBox: `0 0 ${WIDTH} 72`, class: "chart pose", "aria-hidden": "true" },
    svg("line", { x1: 0, x2: WIDTH, y1: 36, y2: 36, class: "axis" }),
    ...before.map((value, place) => bar(value, place, "was")),
    ...after.map((value, place) => bar(value, place, "is")));
  return [legend, picture, numbers];
}
