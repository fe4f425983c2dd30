// The drawing pad: a stack of strokes and images with undo. It holds ink for networks that know digits, and otherwise a
// picture: colored strokes and images on white paper, in both themes.

import { paint } from "./images.js";
import { inkOf, pictureOf } from "./pictures.js";

const SIDE = 420; // pixels of the pad
const PEN = 34;
const CELL = SIDE / 28; // step of an arrow key

export class Pad {
  /** `asInk`: the pad holds ink. `changed` is called after every change. */
  constructor(canvas, { cursor, hint, asInk, changed }) {
    Object.assign(this, { canvas, cursor, hint, asInk, changed, color: "#000000" });
    this.context = canvas.getContext("2d", { willReadFrequently: true });
    this.items = [];
    this.pen = { x: SIDE / 2, y: SIDE / 2, down: false };
    this.listen();
  }

  listen() {
    const { canvas } = this;
    canvas.addEventListener("pointerdown", (event) => {
      this.showCursor(false); // only for the keyboard
      canvas.setPointerCapture(event.pointerId);
      this.begin(this.place(event));
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!canvas.hasPointerCapture(event.pointerId)) return;
      for (const each of event.getCoalescedEvents?.() ?? [event]) this.extend(this.place(each));
      this.refresh();
    });
    canvas.addEventListener("keydown", (event) => this.key(event));
    canvas.addEventListener("focus", () => this.showCursor(canvas.matches(":focus-visible")));
    canvas.addEventListener("blur", () => this.showCursor(false));
  }

  place(event) {
    const frame = this.canvas.getBoundingClientRect();
    const scale = SIDE / frame.width;
    return [(event.clientX - frame.left) * scale, (event.clientY - frame.top) * scale];
  }

  /** Start a stroke; it replaces an example image. */
  begin(point) {
    if (this.items.length === 1 && this.items[0].example) this.items = [];
    this.items.push({ points: [point], color: this.color });
    this.refresh();
  }

  extend(point) {
    this.items.at(-1).points.push(point);
  }

  key(event) {
    const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    const act = { " ": () => this.lower(), Enter: () => this.lower(), Backspace: () => this.undo(), Delete: () => this.clear() };
    if (!step && !act[event.key]) return;
    event.preventDefault();
    if (step) this.move(step);
    else act[event.key]();
    this.showCursor(true);
  }

  lower() {
    this.pen.down = !this.pen.down;
    if (this.pen.down) this.begin([this.pen.x, this.pen.y]);
  }

  move([right, down]) {
    const within = (value) => Math.min(Math.max(value, 0), SIDE);
    Object.assign(this.pen, { x: within(this.pen.x + right * CELL), y: within(this.pen.y + down * CELL) });
    if (!this.pen.down) return;
    this.extend([this.pen.x, this.pen.y]);
    this.refresh();
  }

  showCursor(shown) {
    if (!shown) this.pen.down = false;
    this.cursor.hidden = !shown;
    this.cursor.classList.toggle("down", this.pen.down);
    this.cursor.style.left = `${(this.pen.x / SIDE) * 100}%`;
    this.cursor.style.top = `${(this.pen.y / SIDE) * 100}%`;
  }

  undo() {
    this.pen.down = false;
    this.items.pop();
    this.refresh();
  }

  clear() {
    this.pen.down = false;
    this.items = [];
    this.refresh();
  }

  /** Replace the content of the pad by an image. `exact`: networks get its own pixels until something is drawn. */
  put(image, { exact = false, example = false } = {}) {
    const canvas = document.createElement("canvas");
    paint(canvas, image, { ink: this.asInk });
    this.items = [{ canvas, example, exact: exact ? image : null }];
    this.refresh();
  }

  /** The image that networks get unchanged, or null for a drawing. */
  get exact() {
    return this.items.at(-1)?.exact ?? null;
  }

  get empty() {
    return this.items.length === 0;
  }

  refresh() {
    const { context } = this;
    context.clearRect(0, 0, SIDE, SIDE);
    if (!this.asInk) this.fillPaper(context, SIDE);
    Object.assign(context, { lineWidth: PEN, lineCap: "round", lineJoin: "round", imageSmoothingQuality: "high" });
    for (const item of this.items) {
      if (item.canvas) context.drawImage(item.canvas, 0, 0, SIDE, SIDE);
      else this.stroke(item);
    }
    this.canvas.classList.toggle("ink", this.asInk);
    this.hint.hidden = !this.empty;
    this.changed();
  }

  fillPaper(context, side) {
    context.fillStyle = "white";
    context.fillRect(0, 0, side, side);
  }

  stroke({ points, color }) {
    this.context.strokeStyle = this.asInk ? "black" : color;
    this.context.beginPath();
    this.context.moveTo(...points[0]);
    points.forEach((point) => this.context.lineTo(...point));
    this.context.stroke();
  }

  /** The ink of each pixel of the pad in [0, 1], row by row, and the `side` of the pad. */
  ink() {
    const { data } = this.context.getImageData(0, 0, SIDE, SIDE);
    if (!this.asInk) return { ink: Float32Array.from(inkOf(data).bytes, (byte) => byte / 255), side: SIDE };
    return { ink: Float32Array.from({ length: SIDE * SIDE }, (_, place) => data[place * 4 + 3] / 255), side: SIDE };
  }

  /** The pad as it looks on white paper, at the input size of a network, in color or gray. */
  picture(pixels, channels) {
    const small = new OffscreenCanvas(pixels, pixels).getContext("2d");
    this.fillPaper(small, pixels);
    small.imageSmoothingQuality = "high";
    small.drawImage(this.canvas, 0, 0, pixels, pixels);
    return pictureOf(small.getImageData(0, 0, pixels, pixels).data, pixels, channels);
  }
}
