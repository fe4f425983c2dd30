// Downscale a drawing to the input size of a network.

/** Summed-area table of the ink: the mean over any rectangle takes four look-ups. */
function sums(ink, side) {
  const table = new Float64Array((side + 1) * (side + 1));
  for (let row = 0; row < side; row++) {
    let line = 0;
    for (let column = 0; column < side; column++) {
      line += ink[row * side + column];
      table[(row + 1) * (side + 1) + column + 1] = table[row * (side + 1) + column + 1] + line;
    }
  }
  return table;
}

/** Mean ink in a square of the drawing, empty outside. Corners may be fractional. */
function mean(table, side, left, top, size) {
  const at = (x, y) => {
    const column = Math.min(Math.max(x, 0), side);
    const row = Math.min(Math.max(y, 0), side);
    const [x0, y0] = [Math.floor(column), Math.floor(row)];
    const [x1, y1] = [Math.min(x0 + 1, side), Math.min(y0 + 1, side)];
    const [dx, dy] = [column - x0, row - y0];
    const value = (a, b) => table[b * (side + 1) + a];
    const upper = value(x0, y0) * (1 - dx) + value(x1, y0) * dx;
    return upper * (1 - dy) + (value(x0, y1) * (1 - dx) + value(x1, y1) * dx) * dy;
  };
  const [right, bottom] = [left + size, top + size];
  return (at(right, bottom) - at(left, bottom) - at(right, top) + at(left, top)) / (size * size);
}

/** Size and center of mass of the ink, or null for an empty drawing. */
function extent(ink, side) {
  let [left, right, top, bottom, mass, x, y] = [side, -1, side, -1, 0, 0, 0];
  for (let row = 0; row < side; row++) {
    for (let column = 0; column < side; column++) {
      const value = ink[row * side + column];
      if (value < 0.1) continue;
      [left, right] = [Math.min(left, column), Math.max(right, column)];
      [top, bottom] = [Math.min(top, row), Math.max(bottom, row)];
      mass += value;
      x += value * (column + 0.5);
      y += value * (row + 0.5);
    }
  }
  return mass ? { longest: Math.max(right - left, bottom - top) + 1, x: x / mass, y: y / mass } : null;
}

/**
 * Downscale a drawing to bytes. With `box`, the ink is scaled so that its longer side has that many pixels, and its center
 * of mass is moved to the center, as in MNIST. Without it, the drawing is only downscaled.
 */
export function shrink(ink, side, pixels, box) {
  const found = extent(ink, side);
  const bytes = new Uint8Array(pixels * pixels);
  if (!found) return bytes;
  const table = sums(ink, side);
  const step = box ? Math.max(found.longest, side / 14) / box : side / pixels;
  const [left, top] = box ? [found.x - (step * pixels) / 2, found.y - (step * pixels) / 2] : [0, 0];
  for (let row = 0; row < pixels; row++) {
    for (let column = 0; column < pixels; column++) {
      const value = mean(table, side, left + column * step, top + row * step, step);
      bytes[row * pixels + column] = Math.round(255 * Math.min(1, value * 1.1));
    }
  }
  return bytes;
}
