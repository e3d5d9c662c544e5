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
 * @property {number} origin ns since the run's epoch
 * @property {number} whole length of the trace in ns
 * @property {{t0: number, t1: number}} span since the origin
 * @property {import("./layout.js").Row[]} rows
 * @property {Set<string>} folded
 * @property {string} filter
 * @property {Selected | null} selected
 * @property {number[]} marks
 * @property {{t0: number, t1: number, y: number, height: number} | null} area as marked by the user; y on the sheet
 * @property {import("./colors.js").Palette} palette
 */

const MOST_MARKS = 20;

/**
 * @param {string} query
 * @returns {{t0: number | null, t1: number | null, selected: number | null, text: string, marks: number[]}}
 */
export function readQuery(query) {
  const fields = new URLSearchParams(query);
  /** @param {string} name */
  const number = (name) => {
    const text = fields.get(name);
    return text !== null && text !== "" && Number.isFinite(Number(text)) ? Number(text) : null;
  };
  const marks = (fields.get("m") ?? "").split(",").filter(Boolean).map(Number).filter(Number.isFinite);
  return { t0: number("t0"), t1: number("t1"), selected: number("sel"), text: fields.get("q") ?? "", marks: marks.slice(0, MOST_MARKS) };
}

/**
 * Return the query of a view; fields of other makers are kept.
 * @param {string} before @param {State} state @param {string} text searched for @returns {string}
 */
export function writeQuery(before, state, text) {
  const fields = new URLSearchParams(before);
  /** @param {string} name @param {string | null} value */
  const put = (name, value) => (value === null || value === "" ? fields.delete(name) : fields.set(name, value));
  const everything = state.span.t0 <= 0 && state.span.t1 >= state.whole;
  put("t0", everything ? null : String(Math.round(state.span.t0 + state.origin)));
  put("t1", everything ? null : String(Math.round(state.span.t1 + state.origin)));
  put("sel", state.selected ? String(state.selected.id) : null);
  put("q", text);
  put("m", state.marks.map((mark) => Math.round(mark + state.origin)).join(","));
  fields.delete("step");
  const query = fields.toString();
  return query ? `?${query}` : "";
}

/** @param {number[]} marks @param {number} at @param {number} near @returns {number[]} with the mark, or without the one that is near */
export function toggleMark(marks, at, near) {
  const kept = marks.filter((mark) => Math.abs(mark - at) > near);
  return kept.length < marks.length ? kept : [...marks, at].sort((a, b) => a - b).slice(-MOST_MARKS);
}
