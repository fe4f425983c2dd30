// Vote maps over the drawing.

import { colorOf } from "./images.js";

const GAP = 0.07; // share of a cell, on each side

/**
 * Paint the drawing in gray and a square for each position over it: the stronger its color, the more it contributes to
 * the class. Colors span the values of all iterations; negative contributions have the second color.
 */
export function paintHeat(canvas, image, { maps, frame, ink }, iteration) {
  const context = canvas.getContext("2d");
  const scale = canvas.width / image.width;
  context.clearRect(0, 0, canvas.width, canvas.height);
  Object.assign(context, { imageSmoothingEnabled: true, imageSmoothingQuality: "high", globalAlpha: 1 });
  context.drawImage(grayed(image, ink), 0, 0, canvas.width, canvas.height);
  const values = maps.flat(2);
  const [least, most] = [Math.min(...values), Math.max(...values)];
  const strength = least < 0 ? (value) => Math.abs(value) / Math.max(most, -least) : (value) => (value - least) / (most - least || 1);
  const [left, right, bottom, top] = frame.map((side) => side * scale);
  const [height, width] = [maps[0].length, maps[0][0].length];
  const [high, wide] = [(bottom - top) / height, (right - left) / width];
  maps[iteration].forEach((line, row) =>
    line.forEach((value, column) => {
      context.fillStyle = `rgb(${colorOf(value < 0 ? "--second" : "--accent").join(" ")})`;
      context.globalAlpha = 0.06 + 0.84 * strength(value);
      context.beginPath();
      context.roundRect(left + (column + GAP) * wide, top + (row + GAP) * high, wide * (1 - 2 * GAP), high * (1 - 2 * GAP), wide * 0.18);
      context.fill();
    }),
  );
}

/** The image as a small canvas: ink in the color of muted text, a picture in gray. */
function grayed({ channels, width, height, bytes }, ink) {
  const canvas = new OffscreenCanvas(width, height);
  const data = new ImageData(width, height);
  const color = colorOf("--muted");
  for (let place = 0; place < width * height; place++) {
    let value = 0;
    for (let part = 0; part < channels; part++) value += bytes[part * width * height + place] / channels;
    data.data.set(ink ? [...color, value * 0.6] : [value, value, value, 150], place * 4);
  }
  canvas.getContext("2d").putImageData(data, 0, 0);
  return canvas;
}
