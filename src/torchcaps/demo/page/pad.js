// The drawing pad: a stack of strokes and images with undo.

import { paint } from "./images.js";

const SIDE = 420; // pixels of the pad
const PEN = 34;
const CELL = SIDE / 28; // step of an arrow key

export class Pad {
  /** `changed` is called after every change. */
  constructor(canvas, { cursor, hint, changed }) {
    Object.assign(this, { canvas, cursor, hint, changed });
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
    this.items.push({ points: [point] });
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
    paint(canvas, image);
    this.items = [{ canvas, example, photo: image.channels === 3, exact: exact ? image : null }];
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
    const photo = this.items.some((item) => item.photo);
    context.clearRect(0, 0, SIDE, SIDE);
    context.strokeStyle = photo ? "white" : "black";
    Object.assign(context, { lineWidth: PEN, lineCap: "round", lineJoin: "round", imageSmoothingQuality: "high" });
    for (const item of this.items) {
      if (item.canvas) context.drawImage(item.canvas, 0, 0, SIDE, SIDE);
      else this.stroke(item.points);
    }
    this.canvas.classList.toggle("ink", !photo);
    this.hint.hidden = !this.empty;
    this.changed();
  }

  stroke(points) {
    this.context.beginPath();
    this.context.moveTo(...points[0]);
    points.forEach((point) => this.context.lineTo(...point));
    this.context.stroke();
  }

  /** The ink of each pixel of the pad in [0, 1], row by row, and the `side` of the pad. */
  ink() {
    const { data } = this.context.getImageData(0, 0, SIDE, SIDE);
    const photo = this.items.some((item) => item.photo);
    const ink = new Float32Array(SIDE * SIDE);
    for (let place = 0; place < ink.length; place++) {
      const [red, green, blue, alpha] = data.subarray(place * 4, place * 4 + 4);
      ink[place] = (alpha / 255) * (photo ? (red + green + blue) / 765 : 1);
    }
    return { ink, side: SIDE };
  }

  /** The colors of the pad at the input size of a network. */
  colors(pixels) {
    const small = new OffscreenCanvas(pixels, pixels).getContext("2d");
    Object.assign(small, { fillStyle: "black", imageSmoothingQuality: "high" });
    small.fillRect(0, 0, pixels, pixels);
    small.drawImage(this.canvas, 0, 0, pixels, pixels);
    const { data } = small.getImageData(0, 0, pixels, pixels);
    const bytes = new Uint8Array(3 * pixels * pixels);
    for (let place = 0; place < pixels * pixels; place++) {
      for (let part = 0; part < 3; part++) bytes[part * pixels * pixels + place] = data[place * 4 + part];
    }
    return { channels: 3, height: pixels, width: pixels, bytes };
  }
}
