// The names on the slices, in whatever stands out against them.
import { blend, inkOn, parseHex, VEIL } from "./colors.js";
import { shorten } from "./text.js";

/** @typedef {import("./state.js").State} State */
/** @typedef {import("./painter.js").Shown} Shown */
/** @typedef {import("./painter.js").Box} Box */
/** @typedef {import("./strips.js").Label} Label */

const LETTER_PIXELS = 6.2;
const LEAST_HEIGHT = 14;
const FONT = '11px system-ui, -apple-system, "Segoe UI", sans-serif';

/**
 * Draw the names of some rows.
 * @param {CanvasRenderingContext2D} g @param {State} state @param {Shown[]} shown @param {{labels: Label[], ratio: number, veiled?: boolean}} of
 * @returns {Box[]} where they stand
 */
export function drawNames(g, state, shown, { labels, ratio, veiled = false }) {
  /** @type {Box[]} */
  const boxes = [];
  const [ground, muted] = [[state.palette.ground & 255, (state.palette.ground >> 8) & 255, (state.palette.ground >> 16) & 255], parseHex(state.palette.muted)];
  g.font = FONT;
  g.textBaseline = "middle";
  const first = shown[0]?.strip ?? 0;
  for (const label of labels) {
    const at = shown[label.row - first];
    const source = at && state.sources.get(at.row.rank);
    if (!source || at.row.height < LEAST_HEIGHT) continue;
    const name = label.tile.name[label.index];
    const room = Math.floor((label.width / ratio - 6) / LETTER_PIXELS);
    if (room < 4) continue;
    const color = source.colors.rgb[name];
    g.fillStyle = veiled ? inkOn(blend(color, ground, VEIL), muted) : inkOn(color);
    const [text, x, most] = [shorten(source.meta.names[name], room), label.x / ratio + 3, label.width / ratio - 5];
    g.fillText(text, x, at.y + at.row.height / 2, most);
    if (state.selected?.links?.length) boxes.push({ x, y: at.y, width: Math.min(g.measureText(text).width, most), height: at.row.height });
  }
  g.textBaseline = "alphabetic";
  return boxes;
}

/**
 * Draw the names of rows that lie behind the veil of the critical path, but for some boxes.
 * @param {CanvasRenderingContext2D} g @param {State} state @param {Shown[]} shown @param {{labels: Label[], ratio: number}} of
 * @param {{boxes: Box[], width: number, height: number}} lit
 * @returns {Box[]} where they stand
 */
export function drawVeiledNames(g, state, shown, of, { boxes, width, height }) {
  for (const veiled of [true, false]) {
    g.save();
    g.beginPath();
    if (veiled) g.rect(0, 0, width, height);
    for (const box of boxes) g.rect(box.x, box.y, box.width, box.height);
    g.clip("evenodd");
    drawNames(g, state, shown, { ...of, veiled });
    g.restore();
  }
  return [];
}
