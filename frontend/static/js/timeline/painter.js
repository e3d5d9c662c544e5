// Draws a frame of the timeline: lanes, counters, labels, selection with its flows, marks.
import { COUNTER_HEIGHT, rowOfLane, rowsBetween } from "./layout.js";
import { Strips } from "./strips.js";
import { amount, shorten } from "./text.js";
import { chooseLevel, tileSpan, tilesOf } from "./view.js";

/** @typedef {import("./layout.js").Row} Row */
/** @typedef {import("./layout.js").Source} Source */
/** @typedef {import("./state.js").State} State */
/** @typedef {import("./tile.js").Tile} Tile */

const LETTER_PIXELS = 6.2;
const FONT = '11px system-ui, -apple-system, "Segoe UI", sans-serif';

export class Painter {
  /** @param {HTMLCanvasElement} canvas @param {import("./tile_store.js").TileStore} store */
  constructor(canvas, store) {
    this.canvas = canvas;
    this.store = store;
    this.context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d", { alpha: false }));
    this.strips = new Strips();
    /** Greatest value of each counter, for its scale. @type {Map<string, number>} */
    this.greatest = new Map();
    this.missing = 0;
  }

  /** @param {State} state @param {number} top first visible pixel of the sheet */
  draw(state, top) {
    const { canvas, context: g } = this;
    const ratio = devicePixelRatio || 1;
    const [width, height] = [Math.round(canvas.clientWidth * ratio), Math.round(canvas.clientHeight * ratio)];
    if (canvas.width !== width || canvas.height !== height) [canvas.width, canvas.height] = [width, height];
    const [first, last] = rowsBetween(state.rows, top, top + canvas.clientHeight);
    const rows = state.rows.slice(first, last);
    this.ask(state, rows, canvas.clientWidth);
    this.strips.begin(width, rows.length, state.palette.ground);
    const scale = width / (state.span.t1 - state.span.t0);
    rows.forEach((row, i) => row.kind === "lane" && this.paintLane(state, row, i, scale, ratio));
    this.strips.end();
    g.setTransform(1, 0, 0, 1, 0, 0);
    g.fillStyle = state.palette.ink;
    g.fillRect(0, 0, width, height);
    this.stretch(rows, top, ratio);
    g.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.drawHeadings(state, rows, top);
    for (const row of rows) if (row.kind === "counter") this.drawCounter(state, row, top);
    this.drawLabels(state, rows, top, ratio);
    this.drawSelection(state, top);
    this.drawMarks(state, top);
  }

  /** Ask for the tiles of the rows in view. @param {State} state @param {Row[]} rows @param {number} width */
  ask(state, rows, width) {
    /** @type {[Source, number, number][]} */
    const wanted = [];
    this.missing = 0;
    for (const rank of new Set(rows.map((row) => row.rank))) {
      const source = state.sources.get(rank);
      if (!source) continue;
      const { level, numbers } = neededTiles(state, source, width);
      const missing = numbers.filter((number) => !this.store.find(source, level, number));
      this.missing += missing.length;
      // Whatever is coarsest comes first: one tile fills the whole view until the finer ones are there.
      const empty = missing.some((number) => !this.store.findCoarser(source, level, number));
      if (empty && level < source.meta.topLevel) wanted.unshift([source, source.meta.topLevel, 0]);
      for (const number of numbers) wanted.push([source, level, number]);
    }
    this.store.want(wanted);
  }

  /** @param {State} state @param {Row} row @param {number} strip @param {number} scale @param {number} ratio */
  paintLane(state, row, strip, scale, ratio) {
    const source = state.sources.get(row.rank);
    if (!source) return;
    for (const { tile, from, to } of this.tilesInView(state, source)) {
      const t0 = state.span.t0 - source.shift;
      this.strips.paint(tile, row.lane, strip, { t0, scale, from: (from - t0) * scale, to: (to - t0) * scale, ratio });
    }
  }

  /**
   * Return the tiles that cover the view, each with the stretch it stands for.
   * @param {State} state @param {Source} source @returns {{tile: Tile, from: number, to: number}[]}
   */
  tilesInView(state, source) {
    const { level, numbers } = neededTiles(state, source, this.canvas.clientWidth);
    const size = tileSpan(level, source.meta);
    const found = [];
    for (const number of numbers) {
      const tile = this.store.find(source, level, number) ?? this.store.findCoarser(source, level, number);
      if (tile) found.push({ tile, from: number * size, to: (number + 1) * size });
    }
    return found;
  }

  /** @param {Row[]} rows @param {number} top @param {number} ratio */
  stretch(rows, top, ratio) {
    const { context: g, strips } = this;
    g.imageSmoothingEnabled = false;
    rows.forEach((row, i) => {
      if (row.kind !== "lane") return;
      const y = Math.round((row.y - top) * ratio);
      const bottom = Math.round((row.y + row.height - 1 - top) * ratio);
      g.drawImage(strips.canvas, 0, i, strips.width, 1, 0, y, strips.width, bottom - y);
    });
  }

  /** @param {State} state @param {Row[]} rows @param {number} top */
  drawHeadings(state, rows, top) {
    const g = this.context;
    for (const row of rows) {
      if (row.kind !== "rank" && row.kind !== "group") continue;
      g.fillStyle = state.palette.raised;
      g.fillRect(0, row.y - top, this.canvas.clientWidth, row.height - 1);
    }
  }

  /** @param {State} state @param {Row} row @param {number} top */
  drawCounter(state, row, top) {
    const source = state.sources.get(row.rank);
    if (!source || !row.track) return;
    const g = this.context;
    const scale = this.canvas.clientWidth / (state.span.t1 - state.span.t0);
    const t0 = state.span.t0 - source.shift;
    const key = `${row.rank}/${row.lane}`;
    const whole = this.store.find(source, source.meta.topLevel, 0);
    const range = whole?.counters.get(row.lane);
    if (whole && range && !this.greatest.has(key)) this.greatest.set(key, whole.high.subarray(...range).reduce((a, b) => Math.max(a, b), 0));
    const greatest = this.greatest.get(key) || 1;
    const foot = row.y - top + COUNTER_HEIGHT - 4;
    const rise = COUNTER_HEIGHT - 10;
    const [red, green, blue] = state.palette.classes[row.track.unit === "bytes" ? "copy" : "data"];
    for (const { tile, from, to } of this.tilesInView(state, source)) {
      const points = tile.counters.get(row.lane);
      if (!points) continue;
      const [low, high] = [Math.max(0, (from - t0) * scale), Math.min(this.canvas.clientWidth, (to - t0) * scale)];
      const xOf = (/** @type {number} */ i) => (tile.begin + tile.time[i] * tile.tick - t0) * scale;
      for (let i = points[0]; i < points[1]; i++) {
        const x = Math.max(low, xOf(i));
        const end = Math.min(high, i + 1 < points[1] ? xOf(i + 1) : high);
        if (end < low || x > high) continue;
        const wide = Math.max(end - x, 0.6);
        g.fillStyle = `rgb(${red} ${green} ${blue} / 35%)`;
        g.fillRect(x, foot - (tile.high[i] / greatest) * rise, wide, (tile.high[i] / greatest) * rise);
        g.fillStyle = `rgb(${red} ${green} ${blue})`;
        g.fillRect(x, foot - (tile.last[i] / greatest) * rise - 1, wide, 1.5);
        if (tile.low[i] <= 0) this.markZero(state, x, foot, wide);
      }
    }
    g.fillStyle = state.palette.line;
    g.fillRect(0, foot, this.canvas.clientWidth, 1);
    const scaleText = `max ${amount(greatest, row.track.unit)}`;
    g.font = FONT;
    const wide = g.measureText(scaleText).width + 8;
    g.fillStyle = state.palette.ink;
    g.fillRect(this.canvas.clientWidth - wide, row.y - top, wide, 14);
    g.fillStyle = state.palette.muted;
    g.fillText(scaleText, this.canvas.clientWidth - wide + 4, row.y - top + 11);
  }

  /** @param {State} state @param {number} x @param {number} foot @param {number} wide */
  markZero(state, x, foot, wide) {
    const [red, green, blue] = state.palette.classes.zero;
    this.context.fillStyle = `rgb(${red} ${green} ${blue})`;
    this.context.fillRect(x, foot - 2, wide, 3);
  }

  /** @param {State} state @param {Row[]} rows @param {number} top @param {number} ratio */
  drawLabels(state, rows, top, ratio) {
    const g = this.context;
    g.font = FONT;
    g.textBaseline = "middle";
    for (const label of this.strips.labels) {
      const row = rows[label.row];
      const source = state.sources.get(row.rank);
      if (!source || row.height < 14) continue;
      const name = label.tile.name[label.index];
      const room = Math.floor((label.width / ratio - 6) / LETTER_PIXELS);
      if (room < 4) continue;
      g.fillStyle = source.colors.bright[name] ? "#101418" : "#ffffff";
      g.fillText(shorten(source.meta.names[name], room), label.x / ratio + 3, row.y - top + row.height / 2, label.width / ratio - 5);
    }
    g.textBaseline = "alphabetic";
  }

  /** @param {State} state @param {number} top */
  drawSelection(state, top) {
    const selected = state.selected;
    if (!selected) return;
    const g = this.context;
    const box = this.boxOf(state, selected, top);
    if (!box) return;
    g.strokeStyle = state.palette.text;
    g.lineWidth = 2;
    g.strokeRect(box.x - 1, box.y - 1, Math.max(box.width, 2) + 2, box.height + 1);
    g.strokeStyle = state.palette.accent;
    g.lineWidth = 1.5;
    for (const link of selected.links ?? []) {
      const other = this.boxOf(state, { ...link, rank: selected.rank }, top);
      if (!other || link.relation === "inside of") continue;
      const [from, to] = link.relation === "launched by" ? [other, box] : [box, other];
      const [y0, y1] = [from.y + from.height / 2, to.y + to.height / 2];
      const bend = Math.min(80, 20 + Math.abs(to.x - from.x) / 3);
      g.beginPath();
      g.moveTo(from.x, y0);
      g.bezierCurveTo(from.x + bend, y0, to.x - bend, y1, to.x, y1);
      g.stroke();
      g.strokeRect(other.x, other.y, Math.max(other.width, 2), other.height);
    }
  }

  /**
   * @param {State} state @param {{rank: number, lane: number, start: number, length: number}} slice @param {number} top
   * @returns {{x: number, y: number, width: number, height: number} | null} where it stands, null if it is folded away
   */
  boxOf(state, slice, top) {
    const row = rowOfLane(state.rows, slice.rank, slice.lane);
    const source = state.sources.get(slice.rank);
    if (!row || !source) return null;
    const width = this.canvas.clientWidth;
    const scale = width / (state.span.t1 - state.span.t0);
    const from = Math.max(-50, (slice.start + source.shift - state.span.t0) * scale);
    const to = Math.min(width + 50, (slice.start + slice.length + source.shift - state.span.t0) * scale);
    return { x: from, y: row.y - top, width: Math.max(to - from, 1), height: row.height - 1 };
  }

  /** @param {State} state @param {number} top */
  drawMarks(state, top) {
    const g = this.context;
    const scale = this.canvas.clientWidth / (state.span.t1 - state.span.t0);
    g.fillStyle = state.palette.accent;
    for (const mark of state.marks) g.fillRect((mark - state.span.t0) * scale - 0.5, 0, 1, this.canvas.clientHeight);
    if (!state.area) return;
    g.fillStyle = `${state.palette.accent}22`;
    g.strokeStyle = state.palette.accent;
    g.lineWidth = 1;
    const { t0, t1, y, height } = state.area;
    g.fillRect((t0 - state.span.t0) * scale, y - top, (t1 - t0) * scale, height);
    g.strokeRect((t0 - state.span.t0) * scale, y - top, (t1 - t0) * scale, height);
  }
}

/**
 * @param {State} state @param {Source} source @param {number} width in CSS pixels
 * @returns {{level: number, numbers: number[]}}
 */
export function neededTiles(state, source, width) {
  const level = chooseLevel((state.span.t1 - state.span.t0) / Math.max(width, 1), source.meta);
  const own = { t0: state.span.t0 - source.shift, t1: state.span.t1 - source.shift };
  return { level, numbers: tilesOf(own, level, source.meta, source.meta.span) };
}
