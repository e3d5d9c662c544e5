// The critical path on the lanes: asked for once, shown while its switch is on; everything else steps back.
import { say } from "../copy.js";
import { ownSpan } from "./clocks.js";
import { VEIL } from "./colors.js";
import { byId } from "./dom.js";

/** @typedef {import("./layout.js").Row} Row */
/** @typedef {import("./state.js").State} State */
/** @typedef {{rank: number, starts: number[], ends: number[], lanes: number[]}} Path pieces in order, ns since the origin of the rank */
/** @typedef {{x: number, y: number, width: number, height: number}} Box in CSS pixels of the canvas */
/** @typedef {{x: number, from: number, to: number}} Step from a lane to another one */

const POLL_MS = 2000;
const LEAST_PIXELS = 0.5;

export class Critical {
  /** @param {import("./viewer.js").Viewer} viewer */
  constructor(viewer) {
    this.viewer = viewer;
    /** @type {Path | null} */
    this.path = null;
    this.field = byId("timeline-critical", HTMLInputElement);
    this.field.checked = new URLSearchParams(location.search).get("critical") === "1";
    this.offer();
    this.field.addEventListener("change", () => this.turn());
    if (this.field.checked) this.turn();
  }

  /** Offer the switch where the page's rank has work on a device, which the path leads through. */
  offer() {
    const label = this.field.closest("label");
    if (label) label.hidden = !this.viewer.state.sources.get(this.viewer.main)?.meta.tracks.some(({ kind }) => kind === "stream");
    if (label?.hidden) this.field.checked = false;
  }

  /** Show the path or hide it, as the switch says. */
  async turn() {
    const { viewer, field } = this;
    const address = new URL(location.href);
    if (field.checked) address.searchParams.set("critical", "1");
    else address.searchParams.delete("critical");
    history.replaceState(history.state, "", address);
    if (field.checked && !this.path) this.path = await this.read();
    if (field.checked && !this.path) field.checked = false;
    viewer.state.critical = field.checked ? this.path : null;
    viewer.dirty();
  }

  /** @returns {Promise<Path | null>} */
  async read() {
    const found = await this.viewer.ask("critical", {});
    if (!found) return null;
    if (found.pending) {
      say(found.pending);
      await new Promise((resolve) => setTimeout(resolve, POLL_MS));
      return this.field.checked ? this.read() : null;
    }
    if (!found.starts.length) say("There is no critical path: no step in detail, or no call in one that is linked to the work that it launched");
    return found.starts.length ? { rank: this.viewer.main, ...found } : null;
  }
}

/**
 * Lay the pieces that are in view on their lanes; what is too small to be seen is left out.
 * @param {Path} path @param {Map<number, {y: number, height: number}>} rows by lane @param {{t0: number, t1: number}} span of the rank @param {number} width
 * @returns {{boxes: Box[], steps: Step[]}}
 */
export function layPath(path, rows, span, width) {
  const scale = width / (span.t1 - span.t0);
  /** @type {Box[]} */
  const boxes = [];
  /** @type {Map<number, Step>} */
  const steps = new Map();
  /** @type {Map<number, number>} */
  const reached = new Map();
  /** @type {number | null} */
  let before = null;
  for (let i = findFirst(path.ends, span.t0); i < path.starts.length && path.starts[i] < span.t1; i++) {
    const row = rows.get(path.lanes[i]);
    if (!row) continue;
    const [from, to] = [Math.max(0, (path.starts[i] - span.t0) * scale), Math.min(width, (path.ends[i] - span.t0) * scale)];
    const middle = row.y + row.height / 2;
    if (before !== null && before !== middle) {
      const x = Math.round(from);
      const known = steps.get(x);
      const [low, high] = [Math.min(before, middle), Math.max(before, middle)];
      steps.set(x, { x, from: Math.min(known?.from ?? low, low), to: Math.max(known?.to ?? high, high) });
    }
    before = middle;
    const begin = Math.max(from, reached.get(path.lanes[i]) ?? -1);
    if (to - begin < LEAST_PIXELS) continue;
    reached.set(path.lanes[i], to);
    boxes.push({ x: begin, y: row.y, width: to - begin, height: row.height - 1 });
  }
  return { boxes, steps: [...steps.values()] };
}

/** @param {number[]} ends in order @param {number} at @returns {number} the first that ends after a moment */
function findFirst(ends, at) {
  let [low, high] = [0, ends.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (ends[middle] > at) high = middle;
    else low = middle + 1;
  }
  return low;
}

/**
 * Draw the path over the lanes, and a veil over all that is not on it.
 * @param {CanvasRenderingContext2D} g @param {State} state @param {number} top @param {{width: number, height: number}} size
 * @returns {Box[] | null} what is on the path, null where none is shown
 */
export function drawPath(g, state, top, size) {
  const source = state.critical && state.sources.get(state.critical.rank);
  if (!state.critical || !source) return null;
  /** @type {Map<number, {y: number, height: number}>} */
  const rows = new Map();
  for (const row of state.rows) if (row.kind === "lane" && row.rank === state.critical.rank) rows.set(row.lane, { y: row.y - top, height: row.height });
  const { boxes, steps } = layPath(state.critical, rows, ownSpan(source, state.span), size.width);
  g.save();
  g.beginPath();
  g.rect(0, state.pinnedHeight, size.width, size.height);
  g.clip();
  g.beginPath();
  g.rect(0, 0, size.width, size.height);
  for (const { x, y, width, height } of boxes) g.rect(x, y, width, height);
  g.globalAlpha = VEIL;
  g.fillStyle = state.palette.ink;
  g.fill("evenodd");
  g.globalAlpha = 1;
  g.fillStyle = state.palette.accent;
  for (const { x, y, width, height } of boxes) g.fillRect(x, y + height - 2, width, 2);
  for (const { x, from, to } of steps) g.fillRect(x - 0.5, from, 1, to - from);
  g.restore();
  return boxes;
}
