// Draws a frame of the timeline: lanes, counters, labels, selection with its flows, marks.
import { ownSpan, toView } from "./clocks.js";
import { drawCounter } from "./counters.js";
import { drawPath } from "./critical.js";
import { rowOfLane, rowsBetween } from "./layout.js";
import { drawNames, drawVeiledNames } from "./slice_names.js";
import { Strips } from "./strips.js";
import { chooseLevel, tileSpan, tilesOf } from "./view.js";

/** @typedef {import("./layout.js").Row} Row */
/** @typedef {import("./layout.js").Source} Source */
/** @typedef {import("./state.js").State} State */
/** @typedef {import("./tile.js").Tile} Tile */
/** @typedef {{row: Row, y: number, strip: number}} Shown a row, where it stands on the canvas, and its strip of pixels */

/** @typedef {{x: number, y: number, width: number, height: number}} Box in CSS pixels of the canvas */

/** Relations whose arrow comes from the other slice. */
const FROM_OTHER = new Set(["launched by", "backward of"]);

export class Painter {
  /** @param {HTMLCanvasElement} canvas @param {import("./tile_store.js").TileStore} store */
  constructor(canvas, store) {
    this.canvas = canvas;
    this.store = store;
    this.context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d", { alpha: false }));
    this.strips = new Strips();
    /** Greatest value of each counter, for its scale. @type {Map<string, number>} */
    this.greatest = new Map();
    /** Where text stands in this frame. @type {Box[]} */
    this.texts = [];
    this.missing = 0;
    this.width = 1;
    this.height = 1;
    this.ratio = 1;
  }

  /** @param {State} state @param {number} top first visible pixel of the sheet @param {number} tall how many are visible */
  draw(state, top, tall) {
    const { canvas, context: g } = this;
    const ratio = devicePixelRatio || 1;
    // Whatever is drawn later than the window is resized must not be stretched: lanes would leave their names.
    if (canvas.clientHeight !== tall) canvas.style.height = `${tall}px`;
    Object.assign(this, { ratio, width: canvas.clientWidth, height: canvas.clientHeight });
    const [width, height] = [Math.round(this.width * ratio), Math.round(this.height * ratio)];
    if (canvas.width !== width || canvas.height !== height) [canvas.width, canvas.height] = [width, height];
    const [scrolled, pinned] = this.listShown(state, top);
    const shown = [...scrolled, ...pinned];
    this.ask(state, shown);
    this.strips.begin(width, shown.length, state.palette.ground);
    for (const { row, strip } of shown) if (row.kind === "lane") this.paintLane(state, row, strip, width);
    this.strips.end();
    g.setTransform(ratio, 0, 0, ratio, 0, 0);
    g.fillStyle = state.palette.ink;
    g.fillRect(0, 0, this.width, this.height);
    this.drawRows(state, scrolled);
    const [names, lit] = [{ labels: this.strips.labels, ratio }, drawPath(g, state, top, this)];
    this.texts = lit ? drawVeiledNames(g, state, scrolled, names, { width: this.width, height: this.height, boxes: lit }) : drawNames(g, state, scrolled, names);
    if (pinned.length) {
      this.texts = this.texts.filter(({ y, height }) => y + height / 2 > state.pinnedHeight);
      g.fillStyle = state.palette.ink;
      g.fillRect(0, 0, this.width, state.pinnedHeight);
      this.drawRows(state, pinned);
      this.texts.push(...drawNames(g, state, pinned, names));
      g.fillStyle = state.palette.accent;
      g.fillRect(0, state.pinnedHeight - 2, this.width, 1);
    }
    this.drawSelection(state, top);
    this.drawMarks(state);
  }

  /** @param {State} state @param {number} top @returns {[Shown[], Shown[]]} the rows in view that scroll, and those that stay */
  listShown(state, top) {
    const [first, last] = rowsBetween(state.rows, top + state.pinnedHeight, top + this.height);
    const scrolled = state.rows.slice(first, last).map((row, strip) => ({ row, y: row.y - top, strip }));
    return [scrolled, state.pinned.map((row, i) => ({ row, y: row.y, strip: scrolled.length + i }))];
  }

  /** @param {State} state @param {Shown[]} shown */
  drawRows(state, shown) {
    const { context: g, strips, ratio } = this;
    g.setTransform(1, 0, 0, 1, 0, 0);
    g.imageSmoothingEnabled = false;
    for (const { row, y, strip } of shown) {
      if (row.kind !== "lane") continue;
      const [from, to] = [Math.round(y * ratio), Math.round((y + row.height - 1) * ratio)];
      g.drawImage(strips.canvas, 0, strip, strips.width, 1, 0, from, strips.width, to - from);
    }
    g.setTransform(ratio, 0, 0, ratio, 0, 0);
    g.fillStyle = state.palette.raised;
    for (const { row, y } of shown) if (row.kind === "rank" || row.kind === "group") g.fillRect(0, y, this.width, row.height - 1);
    for (const { row, y } of shown) if (row.kind === "counter") this.drawCounter(state, row, y);
  }

  /** Ask for the tiles of the rows in view. @param {State} state @param {Shown[]} shown */
  ask(state, shown) {
    /** @type {[Source, number, number][]} */
    const wanted = [];
    /** @type {[Source, number, number][]} */
    const beside = [];
    this.missing = 0;
    for (const rank of new Set(shown.map(({ row }) => row.rank))) {
      const source = state.sources.get(rank);
      if (!source) continue;
      const { level, numbers } = neededTiles(state, source, this.width);
      const missing = numbers.filter((number) => !this.store.find(source, level, number));
      this.missing += missing.length;
      // Whatever is coarsest comes first: one tile fills the whole view until the finer ones are there.
      const empty = missing.some((number) => !this.store.findCoarser(source, level, number));
      if (empty && level < source.meta.topLevel) wanted.unshift([source, source.meta.topLevel, 0]);
      for (const number of numbers) wanted.push([source, level, number]);
      // Those that panning needs next, once the view is whole.
      const last = Math.floor(Math.max(source.meta.span - 1, 0) / tileSpan(level, source.meta));
      const next = [numbers[0] - 1, numbers[numbers.length - 1] + 1];
      beside.push(...next.filter((n) => n >= 0 && n <= last).map((n) => /** @type {[Source, number, number]} */ ([source, level, n])));
    }
    this.store.want(this.missing ? wanted : [...wanted, ...beside]);
  }

  /** @param {State} state @param {Row} row @param {number} strip @param {number} width in device pixels */
  paintLane(state, row, strip, width) {
    const source = state.sources.get(row.rank);
    if (!source) return;
    const { t0, t1 } = ownSpan(source, state.span);
    const scale = width / (t1 - t0);
    for (const { tile, from, to } of this.tilesInView(state, source)) {
      this.strips.paint(tile, row.lane, strip, { t0, scale, from: (from - t0) * scale, to: (to - t0) * scale, ratio: this.ratio });
    }
  }

  /**
   * Return the tiles that cover the view, each with the stretch it stands for.
   * @param {State} state @param {Source} source @returns {{tile: Tile, from: number, to: number}[]}
   */
  tilesInView(state, source) {
    const { level, numbers } = neededTiles(state, source, this.width);
    const size = tileSpan(level, source.meta);
    const found = [];
    for (const number of numbers) {
      const tile = this.store.find(source, level, number) ?? this.store.findCoarser(source, level, number);
      if (tile) found.push({ tile, from: number * size, to: (number + 1) * size });
    }
    return found;
  }

  /** @param {State} state @param {Row} row @param {number} y */
  drawCounter(state, row, y) {
    const source = state.sources.get(row.rank);
    if (!source) return;
    const key = `${row.rank}/${source.meta.stamp}/${row.lane}`;
    const whole = this.store.find(source, source.meta.topLevel, 0);
    const range = whole?.counters.get(row.lane);
    if (whole && range && !this.greatest.has(key)) this.greatest.set(key, whole.high.subarray(...range).reduce((a, b) => Math.max(a, b), 0));
    const { t0, t1 } = ownSpan(source, state.span);
    const at = { g: this.context, palette: state.palette, width: this.width, t0, scale: this.width / (t1 - t0) };
    drawCounter(at, row, y, this.tilesInView(state, source), this.greatest.get(key) || 1);
  }

  /** @param {State} state @param {number} top */
  drawSelection(state, top) {
    const { selected, palette } = state;
    const box = selected && this.boxOf(state, selected, top);
    if (!selected || !box) return;
    const g = this.context;
    g.save();
    if (!box.pinned) clipBelow(g, state.pinnedHeight, this.width, this.height);
    g.strokeStyle = palette.text;
    g.lineWidth = 2;
    g.strokeRect(box.x - 1, box.y - 1, Math.max(box.width, 2) + 2, box.height + 1);
    g.strokeStyle = palette.accent;
    g.lineWidth = 1.5;
    for (const link of selected.links ?? []) {
      const other = this.boxOf(state, { ...link, rank: selected.rank }, top);
      if (!other || link.relation === "inside of") continue;
      const [from, to] = FROM_OTHER.has(link.relation) ? [other, box] : [box, other];
      const [y0, y1] = [from.y + from.height / 2, to.y + to.height / 2];
      const bend = Math.min(80, 20 + Math.abs(to.x - from.x) / 3);
      g.save();
      this.clipBesideTexts();
      g.beginPath();
      g.moveTo(from.x, y0);
      g.bezierCurveTo(from.x + bend, y0, to.x - bend, y1, to.x, y1);
      g.stroke();
      g.restore();
      drawHead(g, to.x, y1);
      g.strokeRect(other.x, other.y, Math.max(other.width, 2), other.height);
    }
    g.restore();
  }

  /** Let an arrow pass behind the names of slices, so that they can be read. */
  clipBesideTexts() {
    const g = this.context;
    g.beginPath();
    g.rect(0, 0, this.width, this.height);
    for (const { x, y, width, height } of this.texts) g.rect(x - 2, y, width + 4, height);
    g.clip("evenodd");
  }

  /**
   * @param {State} state @param {{rank: number, lane: number, start: number, length: number}} slice @param {number} top
   * @returns {{x: number, y: number, width: number, height: number, pinned: boolean} | null} where it stands, null if it is folded away
   */
  boxOf(state, slice, top) {
    const pinned = rowOfLane(state.pinned, slice.rank, slice.lane);
    const row = pinned ?? rowOfLane(state.rows, slice.rank, slice.lane);
    const source = state.sources.get(slice.rank);
    if (!row || !source) return null;
    const width = this.canvas.clientWidth;
    const scale = width / (state.span.t1 - state.span.t0);
    const from = Math.max(-50, (toView(source, slice.start) - state.span.t0) * scale);
    const to = Math.min(width + 50, (toView(source, slice.start + slice.length) - state.span.t0) * scale);
    return { x: from, y: pinned ? row.y : row.y - top, width: Math.max(to - from, 1), height: row.height - 1, pinned: pinned !== null };
  }

  /** @param {State} state */
  drawMarks(state) {
    const { context: g, width, height } = this;
    const scale = width / (state.span.t1 - state.span.t0);
    const xOf = (/** @type {number} */ ns) => (ns - state.span.t0) * scale;
    g.fillStyle = state.palette.accent;
    for (const mark of state.marks) g.fillRect(xOf(mark) - 0.5, 0, 1, height);
    if (state.cursor !== null) {
      g.fillStyle = state.palette.muted;
      g.fillRect(Math.round(xOf(state.cursor)), 0, 1, height);
    }
  }
}

/** Draw the head of an arrow that comes from the left. @param {CanvasRenderingContext2D} g @param {number} x @param {number} y */
function drawHead(g, x, y) {
  g.fillStyle = g.strokeStyle;
  g.beginPath();
  g.moveTo(x, y);
  g.lineTo(x - 7, y - 4);
  g.lineTo(x - 7, y + 4);
  g.fill();
}

/** @param {CanvasRenderingContext2D} g @param {number} y @param {number} width @param {number} height */
function clipBelow(g, y, width, height) {
  g.beginPath();
  g.rect(0, y, width, height);
  g.clip();
}

/**
 * @param {State} state @param {Source} source @param {number} width in CSS pixels
 * @returns {{level: number, numbers: number[]}}
 */
export function neededTiles(state, source, width) {
  const level = chooseLevel((state.span.t1 - state.span.t0) / Math.max(width, 1), source.meta);
  return { level, numbers: tilesOf(ownSpan(source, state.span), level, source.meta, source.meta.span) };
}
