/**
 * What the viewer knows, and how it goes into the address. Times in the address are ns since the run's epoch.
 *
 * @typedef {import("./layout.js").Source} Source
 * @typedef {{id: number, place: number, lane: number, start: number, length: number, name: number}} Place
 * @typedef {Place & {relation: string, whole: string, category: string}} Link
 * @typedef {Place & {rank: number, whole?: string, category?: string, step?: number | null, count?: number,
 *   args?: Record<string, unknown>, kind?: {count: number, mean: number, longest: number}, links?: Link[],
 *   linksLeftOut?: number}} Selected times since the origin of its rank
 * @typedef {object} State
 * @property {number[]} ranks
 * @property {Map<number, Source>} sources
 * @property {number} main rank that the page is of
 * @property {number} origin ns since the run's epoch
 * @property {number} whole length of the trace in ns
 * @property {{t0: number, t1: number}} span since the origin
 * @property {import("./layout.js").Row[]} rows
 * @property {import("./layout.js").Row[]} pinned
 * @property {number} pinnedHeight
 * @property {Set<string>} folded
 * @property {Set<string>} pins
 * @property {string} filter
 * @property {Selected | null} selected
 * @property {number[]} marks
 * @property {number | null} cursor where the pointer is, in ns since the origin
 * @property {boolean} together whether the ranks of the page were chosen to be seen together
 * @property {Map<number, import("./clocks.js").Clock>} clocks of the ranks, as far as they were asked for
 * @property {import("./critical.js").Path | null} critical the critical path while it is shown
 * @property {import("./colors.js").Palette} palette
 */

const MOST_MARKS = 20;
const MOST_KEYS = 100;
const KEY = /^r\d{1,7}([gt][a-z0-9]{1,8})?$/;

/**
 * @param {string} query
 * @returns {{t0: number | null, t1: number | null, selected: {rank: number | null, id: number} | null, text: string,
 *   marks: number[], filter: string, pins: string[], folded: string[], open: number[]}}
 */
export function readQuery(query) {
  const fields = new URLSearchParams(query);
  /** @param {string} name */
  const list = (name) => (fields.get(name) ?? "").split(",").filter(Boolean);
  /** @param {string} name */
  const numbers = (name) => list(name).map(Number).filter(Number.isFinite);
  const [t0 = null, t1 = null] = [numbers("t0")[0], numbers("t1")[0]];
  const [, rank, id] = /^(?:(\d{1,7})\.)?(\d{1,10})$/.exec(fields.get("sel") ?? "") ?? [];
  return {
    t0,
    t1,
    selected: id === undefined ? null : { rank: rank === undefined ? null : Number(rank), id: Number(id) },
    text: fields.get("q") ?? "",
    marks: numbers("m").slice(0, MOST_MARKS),
    filter: fields.get("tracks") ?? "",
    pins: list("pin").filter((key) => KEY.test(key)).slice(0, MOST_KEYS),
    folded: list("fold").filter((key) => KEY.test(key)).slice(0, MOST_KEYS),
    open: numbers("open").slice(0, MOST_KEYS),
  };
}

/**
 * Return the query of a view; fields of other makers are kept.
 * @param {string} before @param {State} state @param {string} text searched for @returns {string}
 */
export function writeQuery(before, state, text) {
  const fields = new URLSearchParams(before);
  /** @param {string} name @param {string | null} value */
  const put = (name, value) => (value === null || value === "" ? fields.delete(name) : fields.set(name, value));
  const { span, origin, selected } = state;
  const everything = span.t0 <= 0 && span.t1 >= state.whole;
  const ns = (/** @type {number} */ at) => String(Math.round(at + origin));
  put("t0", everything ? null : ns(span.t0));
  put("t1", everything ? null : ns(span.t1));
  put("sel", selected ? (selected.rank === state.main ? "" : `${selected.rank}.`) + selected.id : null);
  put("q", text);
  put("m", state.marks.map(ns).join(","));
  put("tracks", state.filter);
  put("pin", [...state.pins].slice(0, MOST_KEYS).join(","));
  put("fold", [...state.folded].slice(0, MOST_KEYS).join(","));
  put("open", state.together ? null : [...state.sources.keys()].filter((rank) => rank !== state.main).join(","));
  fields.delete("step");
  const query = fields.toString().replaceAll("%2C", ",");
  return query ? `?${query}` : "";
}

/** @param {number[]} marks @param {number} at @param {number} near @returns {number[]} with the mark, or without the one that is near */
export function toggleMark(marks, at, near) {
  const kept = marks.filter((mark) => Math.abs(mark - at) > near);
  return kept.length < marks.length ? kept : [...marks, at].sort((a, b) => a - b).slice(-MOST_MARKS);
}
