/**
 * Where the times of a rank stand on the clock of the first. Pure: no DOM.
 *
 * @typedef {import("./layout.js").Meta} Meta
 * @typedef {import("./layout.js").Source} Source
 * @typedef {import("./state.js").State} State
 * @typedef {{t0: number, t1: number}} Span
 * @typedef {{rank: number, known: "reference" | "host" | "aligned" | "unknown", anchor: number, shift: number, drift: number}} Clock
 *   a time of the rank is at time + shift + drift · (time - anchor) of the first, all in ns since the run's epoch
 */

/**
 * @param {Meta} meta @param {Clock | undefined} clock @param {number} origin of the viewer @param {number} first origin of the first rank
 * @returns {{shift: number, rate: number}} what puts a time since the rank's origin on the viewer's
 */
export function placeRank(meta, clock, origin, first) {
  if (clock?.known === "unknown") return { shift: first - origin, rate: 1 };
  if (!clock) return { shift: meta.origin - origin, rate: 1 };
  return { shift: meta.origin - origin + clock.shift + clock.drift * (meta.origin - clock.anchor), rate: 1 + clock.drift };
}

/** @param {{shift: number, rate: number}} source @param {number} ns since the rank's origin @returns {number} since the viewer's */
export const toView = (source, ns) => source.shift + source.rate * ns;

/** @param {{shift: number, rate: number}} source @param {number} ns since the viewer's origin @returns {number} since the rank's */
export const toOwn = (source, ns) => (ns - source.shift) / source.rate;

/** @param {{shift: number, rate: number}} source @param {Span} span @returns {Span} the span on the rank's own clock */
export const ownSpan = (source, { t0, t1 }) => ({ t0: toOwn(source, t0), t1: toOwn(source, t1) });

/**
 * Let the view reach over all open ranks: one may begin before the first, or end after it. Who saw everything still does.
 * @param {State} state
 */
export function stretch(state) {
  const all = state.span.t0 <= 0 && state.span.t1 >= state.whole;
  const sources = [...state.sources.values()];
  const begin = Math.min(...sources.map((source) => source.shift));
  state.whole = Math.max(...sources.map((source) => toView(source, source.meta.span) - begin), 1);
  if (begin) rebase(state, begin);
  if (all) state.span = { t0: 0, t1: state.whole };
}

/** Move the origin of the viewer. @param {State} state @param {number} by ns */
function rebase(state, by) {
  state.origin += by;
  for (const source of state.sources.values()) source.shift -= by;
  Object.assign(state.span, { t0: state.span.t0 - by, t1: state.span.t1 - by });
  state.marks = state.marks.map((mark) => mark - by);
  if (state.cursor !== null) state.cursor -= by;
}

/** @param {Clock | undefined} clock @param {(ns: number) => string} write a duration @returns {string} what the heading of the rank says of it */
export function noteClock(clock, write) {
  if (clock?.known === "unknown") return "own start";
  if (clock?.known !== "aligned" || !clock.shift) return "";
  return `${clock.shift < 0 ? "−" : "+"}${write(Math.abs(clock.shift))}`;
}
