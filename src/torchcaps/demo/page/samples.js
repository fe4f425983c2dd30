// Test images below the pad.

import { get } from "./api.js";
import { make } from "./dom.js";
import { isInk } from "./drawing.js";
import { decode, paint, split } from "./images.js";

const SHOWN = 10;

/** Buttons with test images; `choose` is called with an image. */
export class Samples {
  constructor(place, choose) {
    Object.assign(this, { place, choose, loaded: new Map(), all: [], start: 0 });
  }

  /** Show test images of a network's dataset; without access to them, say how to give it. */
  async show(info) {
    this.ink = isInk(info);
    if (!info.samples) {
      this.place.replaceChildren(make("p", { class: "about" }, "To choose test images of the run here, add ",
        make("code", {}, "--images FOLDER"), " with the folder that it was trained on to the command."));
      return [];
    }
    if (!this.loaded.has(info.name)) this.loaded.set(info.name, this.load(info));
    this.all = await this.loaded.get(info.name);
    this.start = 0;
    this.render();
    return this.all;
  }

  async load(info) {
    const { images, labels } = await get(`/api/samples?model=${encodeURIComponent(info.name)}`);
    const names = labels.map((row) => row.map((label) => info.class_names[label]).join(" and "));
    const list = split(decode(images)).map((image, number) => ({ image, name: names[number] }));
    // One of each class first, then the next of each.
    const seen = new Map();
    const rank = list.map(({ name }) => seen.set(name, (seen.get(name) ?? -1) + 1).get(name));
    const order = list.map((_, number) => number).sort((a, b) => rank[a] - rank[b] || a - b);
    return order.map((number) => list[number]);
  }

  /** The next images. */
  more() {
    this.start = this.start + SHOWN < this.all.length ? this.start + SHOWN : 0;
    this.render();
  }

  render() {
    const shown = this.all.slice(this.start, this.start + SHOWN);
    this.place.replaceChildren(
      ...shown.map(({ image, name }) => {
        const canvas = make("canvas", {});
        paint(canvas, image, { ink: this.ink });
        return make("button", { type: "button", "aria-label": `Test image: ${name}`, click: () => this.choose(image) }, canvas);
      }),
    );
  }
}
