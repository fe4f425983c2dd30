// Routing: vote maps of a class per iteration.

import { announce, ask, latest } from "../api.js";
import { distanceChart } from "../chart.js";
import { networkChoice } from "../choice.js";
import { chips, make, slider } from "../dom.js";
import { isInk } from "../drawing.js";
import { paintHeat } from "../heat.js";
import { single } from "../images.js";

const FRAME = 900; // milliseconds per iteration
const VIEWS = [["difference", "Difference from an even share"], ["contribution", "Contribution"]];

export function routingPanel({ models, drawing }) {
  const able = models.filter((info) => info.routes);
  const element = make("div", { class: "panel" });
  if (!able.length) {
    element.append(make("p", { class: "lead" }, "None of these networks has capsule layers."));
    return { id: "routing", title: "Routing", element, open() {}, changed() {} };
  }
  let found = null;
  let iteration = 0;
  let timer = 0;
  let view = VIEWS[0][0];

  const map = make("canvas", { class: "heat", role: "img", width: 560, height: 560, "aria-label": "Votes" });
  const frames = make("div", { class: "frames" });
  const words = make("p", { class: "finding" });
  const play = make("button", { type: "button", class: "primary", click: () => (timer ? pause() : start()) }, "Play");
  let step = slider("Iteration", { min: 1, max: 3, step: 1, value: 1, show: String }, (value) => {
    pause();
    show(value - 1);
  });
  const player = make("div", { class: "player" }, play, step.element);
  const votes = make("div", {});
  const views = chips("Show", VIEWS, (value) => {
    view = value;
    describe();
    show(iteration);
  });
  views.choose(view);
  const choice = networkChoice(able, models, "Votes for", { switched: () => changed(), picked: () => update() });
  element.append(
    make("p", { class: "lead" }, "Capsules at every position vote for the classes, and routing computes the weight of each vote. Each ",
      "square is the center of a position's receptive field: the stronger its color, the more it contributes to the class, ",
      "or the more its contribution differs from an even share among the classes (", make("b", { class: "more" }, "more"), ", ",
      make("b", { class: "less" }, "less"), ")."),
    choice.element,
    make("div", { class: "controls" }, views.element),
    make("div", { class: "workbench wide" }, make("div", { class: "stage" }, map, player),
      make("div", {}, words, frames, votes)),
  );

  function start() {
    play.textContent = "Pause";
    if (iteration === found?.maps.length - 1) show(0);
    timer = setInterval(() => {
      show(iteration + 1);
      if (iteration === found.maps.length - 1) pause();
    }, FRAME);
  }

  function pause() {
    clearInterval(timer);
    timer = 0;
    play.textContent = "Play";
  }

  function show(number) {
    if (!found) return;
    iteration = Math.min(number, found.maps.length - 1);
    step.set(iteration + 1);
    paintHeat(map, single(found.image), shown(), iteration);
    [...frames.children].forEach((frame, other) => frame.setAttribute("aria-pressed", String(other === iteration)));
    map.setAttribute("aria-label", `Votes for ${choice.info.class_names[found.label]}, iteration ${iteration + 1}`);
  }

  /** The maps to paint: contributions, or their differences from those of an even share. */
  function shown() {
    const even = view === "difference" ? found.even_map : null;
    const maps = even ? found.maps.map((map) => map.map((row, y) => row.map((value, x) => value - even[y][x]))) : found.maps;
    return { maps, frame: found.frame, ink: isInk(choice.info) };
  }

  function describe() {
    if (!found) return;
    const name = choice.info.class_names[found.label];
    const share = found.share?.map((value) => `${(100 * value).toFixed(1)} %`).join(" → ");
    views.element.hidden = !found.even_map;
    const one = found.maps.length === 1;
    words.textContent = share
      ? `${share} of the total presence reaches class ${name}, ${one ? "" : "from the first iteration to the last, "}` +
        `${comparison(found.share.at(-1), found.even_share)}.`
      : one
        ? `This routing has a single pass: the attention of class ${name}.`
        : `Votes for class ${name}, from the first iteration to the last.`;
    frames.replaceChildren(
      ...found.maps.map((_, number) => {
        const small = make("canvas", { width: 140, height: 140 });
        paintHeat(small, single(found.image), shown(), number);
        const label = `${number + 1}`;
        return make("button", { type: "button", class: "frame", "aria-label": `Iteration ${label}`, click: () => (pause(), show(number)) },
          small, make("span", {}, label));
      }),
    );
    player.hidden = frames.hidden = one;
    step.input.max = found.maps.length;
    votes.replaceChildren(...(found.distances ? distanceChart(found.distances, name) : []));
    announce(words.textContent);
  }

  const update = latest(async () => {
    if (drawing.empty) return;
    found = await ask("/api/routing", { ...drawing.request(choice.info), label: choice.label });
    choice.mark(found.label);
    describe();
    show(Math.min(iteration, found.maps.length - 1));
  });

  function changed() {
    pause();
    choice.label = null;
    iteration = 99; // the last
    update();
  }
  return { id: "routing", title: "Routing", element, open: changed, changed };
}

/** A share compared with an even one. */
function comparison(share, even) {
  const times = share / even;
  const words = Math.abs(times - 1) < 0.005 ? "the same as" : `${times.toFixed(2)} times`;
  return `${words} an even share of ${(100 * even).toFixed(1)} %`;
}
