// What each network is shown of the drawing.

import { toRows } from "./images.js";
import { shrink } from "./normalise.js";

const DIGITS = /^(mnist|multimnist|affnist|glyphs)/;

/** Whether a network was trained on digits: those are drawn as ink, and centred as MNIST is. */
export const knowsDigits = (info) => DIGITS.test(info.data);

/** The networks that stand side by side: those that look for one thing in an image, or all if there are no such. */
export function sideBySide(models) {
  const single = models.filter((info) => info.labels_per_image === 1);
  return single.length ? single : models;
}

/** The image for a network: {channels, height, width, bytes}. Kept until the drawing changes. */
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
    const centred = /^(mnist|affnist|multimnist)/.test(info.data);
    // Models for larger images than MNIST's get its 28 pixels; the service puts them in the middle.
    const pixels = centred && info.labels_per_image === 1 ? 28 : side;
    const key = `${channels} ${pixels} ${centred}`;
    if (!this.kept.has(key)) this.kept.set(key, this.make(channels, pixels, centred));
    return this.kept.get(key);
  }

  make(channels, pixels, centred) {
    const { exact } = this.pad;
    if (exact && exact.width === pixels && (exact.channels === channels || exact.channels === 1)) return exact;
    if (channels === 3) return this.pad.colours(pixels);
    const { ink, side } = this.pad.ink();
    const box = centred ? Math.round(pixels * (pixels > 28 ? 0.68 : 20 / 28)) : null;
    return { channels: 1, height: pixels, width: pixels, bytes: shrink(ink, side, pixels, box) };
  }

  /** The part of a question that every network gets. */
  question(info) {
    return { model: info.name, image: toRows(this.imageFor(info)) };
  }
}
