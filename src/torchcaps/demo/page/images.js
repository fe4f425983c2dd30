// Images between the service and the screen. Digits are painted as ink: black with the pixel value as opacity; the style
// sheet inverts ink in the dark theme. All other images are pictures and painted as they are.

/** Decode the images of a response to bytes with a shape. */
export function decode({ shape, data }) {
  const text = atob(data);
  const bytes = new Uint8Array(text.length);
  for (let place = 0; place < text.length; place++) bytes[place] = text.charCodeAt(place);
  return { shape, bytes };
}

/** Split decoded images into a list of {channels, height, width, bytes}. */
export function split({ shape, bytes }) {
  const [channels, height, width] = shape.slice(-3);
  const size = channels * height * width;
  const count = bytes.length / size;
  return Array.from({ length: count }, (_, number) => {
    return { channels, height, width, bytes: bytes.subarray(number * size, (number + 1) * size) };
  });
}

/** The single image of a response. */
export const single = (message) => split(decode(message))[0];

const BLACK = [0, 0, 0];

/**
 * Paint an image, or several side by side, on a canvas of their size; the style sheet scales it. With `ink`, gray images
 * are painted as ink of this color.
 */
export function paint(canvas, images, { ink, color = BLACK }) {
  const list = Array.isArray(images) ? images : [images];
  const { height, width } = list[0];
  canvas.width = width * list.length;
  canvas.height = height;
  const context = canvas.getContext("2d");
  const asInk = ink && list[0].channels < 3;
  list.forEach((image, number) => context.putImageData(pixels(image, asInk ? color : null), number * width, 0));
  canvas.classList.toggle("ink", asInk && color === BLACK);
}

/** The pixels of an image; of two channels (stereo), the first is shown. No color: as a picture. */
function pixels({ channels, height, width, bytes }, color) {
  const data = new ImageData(width, height);
  const plane = height * width;
  for (let place = 0; place < plane; place++) {
    const to = place * 4;
    for (let part = 0; part < 3; part++) {
      data.data[to + part] = color ? color[part] : bytes[(channels === 3 ? part * plane : 0) + place];
    }
    data.data[to + 3] = color ? bytes[place] : 255;
  }
  return data;
}

/** Paint a perturbation: brighter pixels in the accent color, darker ones as ink; 128 is none. In color, as a picture. */
export function paintNoise(canvas, image) {
  if (image.channels === 3) return void paint(canvas, image, { ink: false });
  const [bright, dark] = [colorOf("--accent"), colorOf("--text")];
  canvas.width = image.width;
  canvas.height = image.height;
  const data = new ImageData(image.width, image.height);
  for (let place = 0; place < image.width * image.height; place++) {
    const value = image.bytes[place] - 127.5;
    const color = value > 0 ? bright : dark;
    data.data.set([...color, Math.abs(value) < 1 ? 0 : Math.abs(value) * 1.3], place * 4);
  }
  canvas.getContext("2d").putImageData(data, 0, 0);
}

/** A color of the style sheet as red, green and blue. */
export function colorOf(name) {
  const value = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  return [1, 3, 5].map((start) => parseInt(value.slice(start, start + 2), 16));
}

/** Pixels as the service expects them: rows of numbers in [0, 1], or a list of channels of rows. */
export function toRows({ channels, height, width, bytes }) {
  const channelRows = Array.from({ length: channels }, (_, channel) =>
    Array.from({ length: height }, (_, row) => {
      const start = (channel * height + row) * width;
      return Array.from(bytes.subarray(start, start + width), (byte) => Math.round(byte / 0.255) / 1000);
    }),
  );
  return channels === 1 ? channelRows[0] : channelRows;
}
