/**
 * Which track stands where. Pure: no DOM.
 *
 * @typedef {{name: string, kind: string, group: string, unit: string, firstLane: number, lanes: number}} Track
 * @typedef {{rank: number, stamp: string, origin: number, span: number, slices: number, rawLevel: number,
 *   topLevel: number, tileBits: number, tracks: Track[], counters: Track[], names: string[], categories: string[],
 *   nameCategories: number[]}} Meta
 * @typedef {{meta: Meta, shift: number, colors: {rgb: number[][], bright: Uint8Array}}} Source a rank that is open;
 *   `shift` is its origin less the viewer's
 * @typedef {object} Row
 * @property {"rank" | "group" | "lane" | "counter"} kind
 * @property {number} y
 * @property {number} height
 * @property {string} label empty where the row is not the first of its track
 * @property {string} key what folds
 * @property {boolean} folded
 * @property {number} rank
 * @property {number} lane lane or counter, -1 for headings
 * @property {Track | null} track
 * @property {number} lanes how many lanes the track has
 */

export const LANE_HEIGHT = 17;
export const FOLDED_HEIGHT = 11;
export const COUNTER_HEIGHT = 36;
export const HEADING_HEIGHT = 22;
const TRACK_GAP = 3;

/**
 * Lay out the rows of the open ranks and the headings of the others.
 * @param {number[]} ranks all of them @param {Map<number, Source>} sources those that are open
 * @param {Set<string>} folded keys of tracks, groups and ranks that are folded
 * @param {string} filter shows only tracks whose name contains it
 * @returns {{rows: Row[], height: number}}
 */
export function layOut(ranks, sources, folded, filter = "") {
  /** @type {Row[]} */
  const rows = [];
  let y = 0;
  /** @param {Partial<Row> & {kind: Row["kind"], height: number, rank: number, key: string}} row */
  const add = (row) => {
    rows.push({ y, label: "", folded: folded.has(row.key), lane: -1, track: null, lanes: 0, ...row });
    y += row.height;
  };
  for (const rank of ranks) {
    const source = sources.get(rank);
    const rankKey = `r${rank}`;
    if (ranks.length > 1) add({ kind: "rank", height: HEADING_HEIGHT, rank, key: rankKey, label: `Rank ${rank}`, folded: folded.has(rankKey) || !source });
    if (!source || folded.has(rankKey)) continue;
    /** @type {string | null} */
    let group = null;
    const all = [...source.meta.tracks, ...source.meta.counters.map((track, i) => ({ ...track, firstLane: i, lanes: 0 }))];
    all.forEach((track, number) => {
      if (filter && !`${track.group} ${track.name}`.toLowerCase().includes(filter)) return;
      const groupKey = `${rankKey}g${track.group}`;
      if (track.group !== group) {
        group = track.group;
        add({ kind: "group", height: HEADING_HEIGHT, rank, key: groupKey, label: group || "Tracks" });
      }
      if (folded.has(groupKey)) return;
      const key = `${rankKey}t${number}`;
      if (!track.lanes) {
        add({ kind: "counter", height: COUNTER_HEIGHT, rank, key, label: track.name, lane: track.firstLane, track });
      } else {
        const shown = folded.has(key) ? 1 : track.lanes;
        for (let i = 0; i < shown; i++) {
          const height = folded.has(key) ? FOLDED_HEIGHT : LANE_HEIGHT;
          add({ kind: "lane", height, rank, key, label: i ? "" : track.name, lane: track.firstLane + i, track, lanes: track.lanes });
        }
      }
      y += TRACK_GAP;
    });
  }
  return { rows, height: y };
}

/** @param {Row[]} rows @param {number} y @returns {Row | null} */
export function rowAt(rows, y) {
  let [first, last] = [0, rows.length];
  while (first < last) {
    const middle = (first + last) >> 1;
    if (rows[middle].y + rows[middle].height <= y) first = middle + 1;
    else last = middle;
  }
  return first < rows.length && rows[first].y <= y ? rows[first] : null;
}

/** @param {Row[]} rows @param {number} top @param {number} bottom @returns {[number, number]} the rows in between */
export function rowsBetween(rows, top, bottom) {
  let first = 0;
  while (first < rows.length && rows[first].y + rows[first].height <= top) first++;
  let last = first;
  while (last < rows.length && rows[last].y < bottom) last++;
  return [first, last];
}

/** @param {Row[]} rows @param {number} rank @param {number} lane @returns {Row | null} */
export function rowOfLane(rows, rank, lane) {
  return rows.find((row) => row.kind === "lane" && row.rank === rank && row.lane === lane) ?? null;
}
