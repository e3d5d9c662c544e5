/**
 * Which track stands where. Pure: no DOM.
 *
 * @typedef {{name: string, kind: string, group: string, unit: string, firstLane: number, lanes: number}} Track
 * @typedef {{rank: number, stamp: string, origin: number, span: number, slices: number, rawLevel: number,
 *   topLevel: number, tileBits: number, tracks: Track[], counters: Track[], names: string[], categories: string[],
 *   nameCategories: number[], phaseColors: Record<string, string>}} Meta
 * @typedef {{meta: Meta, shift: number, rate: number, note: string, colors: {rgb: number[][], idle: Uint8Array}}} Source a
 *   rank that is open; a time since its origin is at shift + rate · time since the viewer's, and `note` tells of its clock
 * @typedef {object} Row
 * @property {"rank" | "group" | "lane" | "counter"} kind
 * @property {number} y
 * @property {number} height
 * @property {string} label empty where the row is not the first of its track
 * @property {string} key what folds, and of a track what is pinned
 * @property {boolean} folded
 * @property {number} rank
 * @property {number} lane lane or counter, -1 for headings
 * @property {Track | null} track
 * @property {number} lanes how many lanes the track has
 * @typedef {object} Layout
 * @property {Row[]} rows those that scroll, below the pinned ones
 * @property {Row[]} pinned those that stay at the top
 * @property {number} height of all
 * @property {number} pinnedHeight
 * @property {number} shown tracks that the filter lets through
 * @property {number} tracks of all open ranks
 */

export const LANE_HEIGHT = 17;
export const COUNTER_HEIGHT = 36;
export const HEADING_HEIGHT = 24;
const TRACK_GAP = 3;
/** The least height of a name: it is a button, which a finger must meet. */
export const NAME_HEIGHT = 24;
/** The height of the only row of a track. */
export const SINGLE_HEIGHT = NAME_HEIGHT - TRACK_GAP;

/** @param {string} text @returns {string} short, and the same for the same text on every visit */
export function shortKey(text) {
  let hash = 2166136261;
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 16777619);
  return (hash >>> 0).toString(36);
}

/** @param {number} rank @returns {string} */
export const rankKey = (rank) => `r${rank}`;
/** @param {number} rank @param {string} group @returns {string} */
export const groupKey = (rank, group) => `r${rank}g${shortKey(group)}`;
/** @param {number} rank @param {Track} track @returns {string} */
export const trackKey = (rank, track) => `r${rank}t${shortKey(`${track.group}\n${track.name}`)}`;

/** @param {Meta} meta @returns {Track[]} its tracks in page order, counters last; a counter has no lanes */
export function listTracks(meta) {
  return [...meta.tracks, ...meta.counters.map((track, i) => ({ ...track, firstLane: i, lanes: 0 }))];
}

/** Rows one below the other. */
class Stack {
  /** @param {number} y @param {Set<string>} folded */
  constructor(y, folded) {
    this.y = y;
    this.folded = folded;
    /** @type {Row[]} */
    this.rows = [];
  }

  /** @param {Partial<Row> & {kind: Row["kind"], height: number, rank: number, key: string}} row */
  add(row) {
    this.rows.push({ y: this.y, label: "", folded: this.folded.has(row.key), lane: -1, track: null, lanes: 0, ...row });
    this.y += row.height;
  }

  /** @param {number} rank @param {Track} track @param {string} label */
  addTrack(rank, track, label) {
    const key = trackKey(rank, track);
    if (!track.lanes) {
      this.add({ kind: "counter", height: COUNTER_HEIGHT, rank, key, label, lane: track.firstLane, track });
    } else {
      const folded = this.folded.has(key);
      const height = folded || track.lanes === 1 ? SINGLE_HEIGHT : LANE_HEIGHT;
      for (let i = 0; i < (folded ? 1 : track.lanes); i++) {
        this.add({ kind: "lane", height, rank, key, label: i ? "" : label, lane: track.firstLane + i, track, lanes: track.lanes });
      }
    }
    this.y += TRACK_GAP;
  }
}

/**
 * Lay out the rows of the open ranks and the headings of the others, below the tracks that are pinned.
 * @param {number[]} ranks all of them @param {Map<number, Source>} sources those that are open
 * @param {{folded: Set<string>, filter?: string, pins?: Set<string>}} view keys of what is folded and pinned; only
 *   tracks whose name contains the filter are shown
 * @returns {Layout}
 */
export function layOut(ranks, sources, { folded, filter = "", pins = new Set() }) {
  const pinned = new Stack(0, folded);
  for (const [rank, source] of sources) {
    for (const track of pins.size ? listTracks(source.meta) : []) {
      if (pins.has(trackKey(rank, track))) pinned.addTrack(rank, track, ranks.length > 1 ? `${rank}: ${track.name}` : track.name);
    }
  }
  const stack = new Stack(pinned.y, folded);
  let [shown, tracks] = [0, 0];
  for (const rank of ranks) {
    const source = sources.get(rank);
    const key = rankKey(rank);
    if (ranks.length > 1) stack.add({ kind: "rank", height: HEADING_HEIGHT, rank, key, label: source?.note ? `Rank ${rank} (${source.note})` : `Rank ${rank}`, folded: folded.has(key) || !source });
    if (!source) continue;
    let group = null;
    for (const track of listTracks(source.meta)) {
      tracks++;
      if (filter && !`${track.group} ${track.name}`.toLowerCase().includes(filter)) continue;
      shown++;
      if (folded.has(key)) continue;
      const ofGroup = groupKey(rank, track.group);
      if (track.group !== group) stack.add({ kind: "group", height: HEADING_HEIGHT, rank, key: ofGroup, label: track.group || "Tracks" });
      group = track.group;
      if (!folded.has(ofGroup)) stack.addTrack(rank, track, track.name);
    }
  }
  return { rows: stack.rows, pinned: pinned.rows, height: stack.y, pinnedHeight: pinned.y, shown, tracks };
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
