// The input image of each network.

import { toRows } from "./images.js";
import { shrink } from "./normalize.js";

const DIGITS = /^(mnist|multimnist|affnist|glyphs)/;

/** Whether a network was trained on digits. */
export const knowsDigits = (info) => DIGITS.test(info.data);

/** Whether the images of a network are ink, where 0 is the paper, as in MNIST. All others are pictures. */
export const isInk = (info) => knowsDigits(info) || info.data.startsWith("fashion-mnist");

/** The networks shown side by side: those with one label per image, or all if there are none. */
export function sideBySide(models) {
  const single = models.filter((info) => info.labels_per_image === 1);
  return single.length ? single : models;
}

/** The image for each network, {channels, height, width, bytes}, cached until the drawing changes. */
export class Drawing {
  constructor(pad) {
    this.pad = pad;
    this.kept = new Map();
  }

  changed() {
    this.kept.clear();
  }

  get empty() {
    return this.pad.empty;
  }

  imageFor(info) {
    const [channels, side] = info.image_shape;
    const centered = /^(mnist|affnist|multimnist)/.test(info.data);
    // Models with inputs larger than MNIST get 28 pixels too; the service pads them.
    const pixels = centered && info.labels_per_image === 1 ? 28 : side;
    const key = `${channels} ${pixels} ${centered} ${isInk(info)}`;
    if (!this.kept.has(key)) this.kept.set(key, this.make(channels, pixels, centered, isInk(info)));
    return this.kept.get(key);
  }

  make(channels, pixels, centered, asInk) {
    const { exact } = this.pad;
    if (exact && exact.width === pixels && (exact.channels === channels || exact.channels === 1)) return exact;
    if (channels === 3 || !asInk) return this.pad.picture(pixels, channels === 3 ? 3 : 1);
    const { ink, side } = this.pad.ink();
    const box = centered ? Math.round(pixels * (pixels > 28 ? 0.68 : 20 / 28)) : null;
    return { channels: 1, height: pixels, width: pixels, bytes: shrink(ink, side, pixels, box) };
  }

  /** The common part of all requests. */
  request(info) {
    return { model: info.name, image: toRows(this.imageFor(info)) };
  }
}
