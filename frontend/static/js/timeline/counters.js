// Counter tracks: a curve per counter, with the least and the greatest value where several points share a bin.
import { COUNTER_HEIGHT } from "./layout.js";
import { amount } from "./text.js";

/** @typedef {import("./layout.js").Row} Row */
/** @typedef {import("./layout.js").Source} Source */
/** @typedef {import("./tile.js").Tile} Tile */
/** @typedef {{tile: Tile, from: number, to: number}} Piece a tile and the stretch that it stands for */
/** @typedef {{g: CanvasRenderingContext2D, palette: import("./colors.js").Palette, width: number, t0: number, scale: number}} At */

const FONT = '11px system-ui, -apple-system, "Segoe UI", sans-serif';

/** @param {At} at @param {Row} row @param {number} y @param {Piece[]} pieces @param {number} greatest value of the counter */
export function drawCounter(at, row, y, pieces, greatest) {
  const { g, palette, width } = at;
  const foot = y + COUNTER_HEIGHT - 4;
  const unit = row.track?.unit ?? "";
  const color = palette.classes[unit === "bytes" ? "copy" : "data"];
  // A queue that is empty is worth a look, memory that is free is not.
  const curve = { foot, rise: (COUNTER_HEIGHT - 10) / (greatest || 1), color, warnsOfZero: unit !== "bytes" };
  for (const piece of pieces) drawPiece(at, piece, row.lane, curve);
  g.fillStyle = palette.line;
  g.fillRect(0, foot, width, 1);
  const text = `max ${amount(greatest, unit)}`;
  g.font = FONT;
  const wide = g.measureText(text).width + 8;
  g.fillStyle = palette.ink;
  g.fillRect(width - wide, y, wide, 14);
  g.fillStyle = palette.muted;
  g.fillText(text, width - wide + 4, y + 11);
}

/** @param {At} at @param {Piece} piece @param {number} counter @param {{foot: number, rise: number, color: number[], warnsOfZero: boolean}} curve */
function drawPiece({ g, palette, width, t0, scale }, { tile, from, to }, counter, { foot, rise, color, warnsOfZero }) {
  const points = tile.counters.get(counter);
  if (!points) return;
  const [low, high] = [Math.max(0, (from - t0) * scale), Math.min(width, (to - t0) * scale)];
  const xOf = (/** @type {number} */ i) => (tile.begin + tile.time[i] * tile.tick - t0) * scale;
  const bin = 2 ** tile.level * scale;
  const rgb = color.join(" ");
  for (let i = points[0]; i < points[1]; i++) {
    const x = Math.max(low, xOf(i));
    const end = Math.min(high, i + 1 < points[1] ? xOf(i + 1) : high);
    if (end < low || x > high) continue;
    const wide = Math.max(end - x, 0.6);
    g.fillStyle = `rgb(${rgb} / 35%)`;
    // The greatest value is one of the bin's; the last one holds until the next point.
    const peak = Math.min(Math.max(bin, 1), wide);
    g.fillRect(x, foot - tile.high[i] * rise, peak, tile.high[i] * rise);
    if (wide > peak) g.fillRect(x + peak, foot - tile.last[i] * rise, wide - peak, tile.last[i] * rise);
    g.fillStyle = `rgb(${rgb})`;
    g.fillRect(x, foot - tile.last[i] * rise - 1, wide, 1.5);
    if (tile.low[i] > 0 || !warnsOfZero) continue;
    g.fillStyle = `rgb(${palette.classes.worse.join(" ")})`;
    g.fillRect(x, foot - 2, tile.last[i] > 0 ? peak : wide, 3);
  }
}

/** @param {Tile} tile @param {number} counter @param {number} ns since the origin @returns {number | null} the value that holds then */
export function valueAt(tile, counter, ns) {
  const points = tile.counters.get(counter);
  if (!points) return null;
  const ticks = (ns - tile.begin) / tile.tick;
  let [first, last] = points;
  while (first < last) {
    const middle = (first + last) >> 1;
    if (tile.time[middle] <= ticks) first = middle + 1;
    else last = middle;
  }
  return first > points[0] ? tile.last[first - 1] : null;
}
