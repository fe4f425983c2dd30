// Image files, dropped or pasted images: their center square, as ink for networks trained on digits.

const SIDE = 420;

/** Read a file as an image {channels, height, width, bytes}. */
export async function readPicture(file, asInk) {
  const bitmap = await createImageBitmap(file).catch(() => {
    throw new Error(`${file.name || "the file"} is not an image that this browser can show`);
  });
  const context = new OffscreenCanvas(SIDE, SIDE).getContext("2d");
  const size = Math.min(bitmap.width, bitmap.height);
  Object.assign(context, { fillStyle: "white", imageSmoothingQuality: "high" });
  context.fillRect(0, 0, SIDE, SIDE); // behind transparent pixels
  context.drawImage(bitmap, (bitmap.width - size) / 2, (bitmap.height - size) / 2, size, size, 0, 0, SIDE, SIDE);
  bitmap.close();
  const { data } = context.getImageData(0, 0, SIDE, SIDE);
  return asInk ? inkOf(data) : pictureOf(data, SIDE, 3);
}

/** The pixels of a canvas as an image with three channels, or with one: its brightness. */
export function pictureOf(data, side, channels) {
  const plane = side * side;
  const bytes = new Uint8Array(channels * plane);
  for (let place = 0; place < plane; place++) {
    const [red, green, blue] = data.subarray(place * 4, place * 4 + 3);
    if (channels === 1) bytes[place] = 0.299 * red + 0.587 * green + 0.114 * blue;
    else [red, green, blue].forEach((value, part) => (bytes[part * plane + place] = value));
  }
  return { channels, height: side, width: side, bytes };
}

/** Ink is what differs from the paper, whose brightness is that of the border. */
export function inkOf(data) {
  const gray = new Float32Array(SIDE * SIDE);
  let border = 0;
  for (let place = 0; place < gray.length; place++) {
    gray[place] = (data[place * 4] + data[place * 4 + 1] + data[place * 4 + 2]) / 3;
    const [row, column] = [Math.floor(place / SIDE), place % SIDE];
    if (row === 0 || column === 0 || row === SIDE - 1 || column === SIDE - 1) border += gray[place];
  }
  const paper = border / (4 * SIDE - 4);
  const farthest = gray.reduce((most, value) => Math.max(most, Math.abs(value - paper)), 1);
  // Less than a quarter of the strongest ink is shading of the paper.
  const bytes = Uint8Array.from(gray, (value) => {
    return Math.max(0, Math.min(1, (Math.abs(value - paper) / farthest - 0.25) / 0.5)) * 255;
  });
  return { channels: 1, height: SIDE, width: SIDE, bytes };
}
