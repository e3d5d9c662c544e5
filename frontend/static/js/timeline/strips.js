/**
 * The strip rasteriser: one row of pixels per lane, stretched to the lane's height. It paints 100,000 slices in a few
 * milliseconds, where a rectangle each would take hundreds.
 */
import { firstEndingAfter } from "./tile.js";

/** @typedef {import("./tile.js").Tile} Tile */
/** @typedef {{x: number, width: number, row: number, tile: Tile, index: number}} Label */

const SHORT_RUN = 8;
const GAP_FROM = 5;
export const LABEL_PIXELS = 34;
const MOST_LABELS = 1500;
/** Of 256: what a slice that is thinner than a pixel shows at least of its colour, so that it is seen at all. */
const THINNEST = 90;
const THINNEST_IDLE = 16;

/**
 * Mix two pixels. @param {number} below @param {number} above @param {number} share of the one above, of 256
 * @returns {number}
 */
export function mix(below, above, share) {
  const rest = 256 - share;
  const odd = ((below & 0xff00ff) * rest + (above & 0xff00ff) * share) >>> 8;
  const even = ((below & 0xff00) * rest + (above & 0xff00) * share) >>> 8;
  return (0xff000000 | (odd & 0xff00ff) | (even & 0xff00)) >>> 0;
}

export class Strips {
  constructor() {
    this.canvas = document.createElement("canvas");
    this.context = /** @type {CanvasRenderingContext2D} */ (this.canvas.getContext("2d", { alpha: false, willReadFrequently: true }));
    this.image = this.context.createImageData(1, 1);
    this.pixels = new Uint32Array(this.image.data.buffer);
    this.width = 1;
    this.ground = 0;
    /** @type {Label[]} */
    this.labels = [];
    this.painted = 0;
  }

  /** Begin a frame of that many rows. @param {number} width device pixels @param {number} rows @param {number} ground */
  begin(width, rows, ground) {
    const height = Math.max(rows, 1);
    if (this.canvas.width !== width || this.canvas.height !== height) {
      this.canvas.width = width;
      this.canvas.height = height;
      this.image = this.context.createImageData(width, height);
      this.pixels = new Uint32Array(this.image.data.buffer);
    }
    this.width = width;
    this.ground = ground;
    this.labels = [];
    this.painted = 0;
    this.pixels.fill(ground);
  }

  /**
   * Paint one lane of a tile into a row, between two pixels only: what stands beyond belongs to another tile.
   * @param {Tile} tile @param {number} lane @param {number} row
   * @param {{t0: number, scale: number, from: number, to: number, ratio: number}} at `scale` in device pixels per ns
   */
  paint(tile, lane, row, at) {
    const range = tile.lanes.get(lane);
    if (!range) return;
    const { pixels, width, ground } = this;
    const { start, length, color, count, name, idle } = tile;
    const offset = (tile.begin - at.t0) * at.scale;
    const perTick = tile.tick * at.scale;
    const base = row * width;
    const low = Math.max(0, Math.floor(at.from));
    const high = Math.min(width, Math.ceil(at.to));
    const last = range[1];
    const wide = LABEL_PIXELS * at.ratio;
    for (let i = firstEndingAfter(tile, range[0], last, (low - offset) / perTick - 1); i < last; i++) {
      const x = start[i] * perTick + offset;
      if (x >= high) break;
      const end = x + length[i] * perTick;
      const first = x < low ? low : x | 0;
      let stop = end >= high ? high : Math.ceil(end);
      if (stop <= first) {
        if (end < low) continue;
        stop = first + 1;
      }
      this.painted++;
      if (end - x < 1 && count[i] === 1) {
        // Several that share a pixel add up to what they cover of it.
        const below = pixels[base + first];
        const least = below !== ground ? 1 : idle[name[i]] ? THINNEST_IDLE : THINNEST;
        pixels[base + first] = mix(below, color[i], Math.max((end - x) * 256, least) | 0);
        continue;
      }
      // Neighbours of one colour stay apart while there is room for a pixel between them.
      if (stop - first >= GAP_FROM && end < high) stop = (end | 0) - 1;
      if (stop - first < SHORT_RUN) for (let p = first; p < stop; p++) pixels[base + p] = color[i];
      else pixels.fill(color[i], base + first, base + stop);
      // A slice that came from the tile before is labelled there, unless its start is out of view.
      const shown = Math.max(x, 0);
      if (end - shown >= wide && count[i] === 1 && (x >= low || low === 0) && this.labels.length < MOST_LABELS) {
        this.labels.push({ x: shown, width: Math.min(end, width) - shown, row, tile, index: i });
      }
    }
  }

  /** Hand the rows over to the canvas that is drawn from. */
  end() {
    this.context.putImageData(this.image, 0, 0);
  }
}
