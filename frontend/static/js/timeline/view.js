/**
 * What part of time is shown, and which tiles that needs. Pure: no DOM.
 *
 * @typedef {{t0: number, t1: number}} Span ns since the origin of the viewer
 * @typedef {{rawLevel: number, topLevel: number, tileBits: number}} Levels
 */

const SHORTEST_NS = 100;
const RAW_MARGIN = 2;

/** @param {Span} span @param {number} whole length of the trace in ns @returns {Span} */
export function clamp(span, whole) {
  const length = Math.min(Math.max(span.t1 - span.t0, SHORTEST_NS), whole * 1.1);
  const [low, high] = length >= whole ? [whole - length, 0] : [-0.5 * length, whole - 0.5 * length];
  const t0 = Math.min(Math.max((span.t0 + span.t1 - length) / 2, low), high);
  return { t0, t1: t0 + length };
}

/** @param {Span} span @param {number} factor above 1 shows more @param {number} at moment that stays where it is */
export function zoom(span, factor, at) {
  return { t0: at - (at - span.t0) * factor, t1: at + (span.t1 - at) * factor };
}

/** @param {Span} span @param {number} ns */
export function pan(span, ns) {
  return { t0: span.t0 + ns, t1: span.t1 + ns };
}

/** @param {number} nsPerPixel @param {Levels} levels @returns {number} */
export function chooseLevel(nsPerPixel, levels) {
  const level = Math.floor(Math.log2(Math.max(nsPerPixel, 1)));
  return level < levels.rawLevel + RAW_MARGIN ? Math.min(levels.rawLevel, levels.topLevel) : Math.min(level, levels.topLevel);
}

/** @param {number} level @param {Levels} levels @returns {number} ns that a tile covers */
export function tileSpan(level, levels) {
  return 2 ** (level + levels.tileBits);
}

/**
 * Return the numbers of the tiles that a span needs.
 * @param {Span} span @param {number} level @param {Levels} levels @param {number} whole @returns {number[]}
 */
export function tilesOf(span, level, levels, whole) {
  const size = tileSpan(level, levels);
  const last = Math.floor(Math.max(whole - 1, 0) / size);
  const first = Math.min(Math.max(Math.floor(span.t0 / size), 0), last);
  const end = Math.min(Math.max(Math.floor(span.t1 / size), 0), last);
  if (span.t1 < 0 || span.t0 > whole) return [];
  const numbers = [];
  for (let number = first; number <= end; number++) numbers.push(number);
  return numbers;
}

/**
 * Return the window for a selection: the slice with half its length on both sides.
 * @param {number} start @param {number} length @returns {Span}
 */
export function fit(start, length) {
  const margin = Math.max(length, SHORTEST_NS) * 0.5;
  return { t0: start - margin, t1: start + length + margin };
}
