/**
 * Reads a packed tile; the layout is that of profiler_server/timeline/tiles.py.
 *
 * @typedef {object} Tile
 * @property {number} level
 * @property {number} begin start in ns since the origin
 * @property {number} tick ns per tick
 * @property {Map<number, [number, number]>} lanes lane to first and last row
 * @property {Int32Array} start
 * @property {Uint32Array} length
 * @property {Uint32Array} id
 * @property {Uint32Array} name
 * @property {Uint16Array} count
 * @property {Uint8Array} fill
 * @property {Map<number, [number, number]>} counters counter to first and last point
 * @property {Int32Array} time
 * @property {Float32Array} low
 * @property {Float32Array} high
 * @property {Float32Array} last
 * @property {Uint32Array} color of each slice, filled in by the painter
 * @property {Uint8Array} idle of each name, likewise: whether it stands for waiting
 * @property {number} bytes
 */

const HEADER_BYTES = 40;

/** @param {ArrayBuffer} buffer @returns {Tile} */
export function decodeTile(buffer) {
  const view = new DataView(buffer);
  if (buffer.byteLength < HEADER_BYTES || view.getUint32(0, false) !== 0x544c5431) throw new Error("This is no tile.");
  const [slices, lanes, counters, points, level] = [4, 8, 12, 16, 20].map((at) => view.getUint32(at, true));
  let at = HEADER_BYTES;
  /**
   * @template {Int32Array | Uint32Array | Uint16Array | Uint8Array | Float32Array} T
   * @param {new (buffer: ArrayBuffer, at: number, size: number) => T} Kind @param {number} size @returns {T}
   */
  const take = (Kind, size) => {
    const column = new Kind(buffer, at, size);
    at += (column.byteLength + 3) & ~3;
    return column;
  };
  const laneTable = take(Uint32Array, 2 * lanes);
  const [start, length] = [take(Int32Array, slices), take(Uint32Array, slices)];
  const [id, name] = [take(Uint32Array, slices), take(Uint32Array, slices)];
  const [count, fill] = [take(Uint16Array, slices), take(Uint8Array, slices)];
  const counterTable = take(Uint32Array, 2 * counters);
  const time = take(Int32Array, points);
  const [low, high, last] = [take(Float32Array, points), take(Float32Array, points), take(Float32Array, points)];
  return {
    level,
    begin: view.getFloat64(24, true),
    tick: view.getFloat64(32, true),
    lanes: readRanges(laneTable),
    start,
    length,
    id,
    name,
    count,
    fill,
    counters: readRanges(counterTable),
    time,
    low,
    high,
    last,
    color: new Uint32Array(0),
    idle: new Uint8Array(0),
    bytes: buffer.byteLength,
  };
}

/** @param {Uint32Array} table pairs of key and size @returns {Map<number, [number, number]>} */
function readRanges(table) {
  const ranges = new Map();
  for (let i = 0, first = 0; i < table.length; i += 2) {
    ranges.set(table[i], [first, first + table[i + 1]]);
    first += table[i + 1];
  }
  return ranges;
}

/**
 * Return the first row of a lane that ends after a moment.
 * @param {Tile} tile @param {number} first @param {number} last @param {number} ticks since the tile's start
 */
export function firstEndingAfter(tile, first, last, ticks) {
  while (first < last) {
    const middle = (first + last) >> 1;
    if (tile.start[middle] + tile.length[middle] <= ticks) first = middle + 1;
    else last = middle;
  }
  return first;
}

/**
 * Return from where to where the slices of a lane reach within a span, null where it has none there.
 * @param {Tile} tile @param {number} lane @param {{t0: number, t1: number}} span in ns since the origin
 * @returns {{t0: number, t1: number} | null}
 */
export function findReach(tile, lane, { t0, t1 }) {
  const range = tile.lanes.get(lane);
  if (!range) return null;
  const end = (t1 - tile.begin) / tile.tick;
  const first = firstEndingAfter(tile, range[0], range[1], (t0 - tile.begin) / tile.tick);
  let last = range[1] - 1;
  while (last >= first && tile.start[last] >= end) last--;
  if (last < first) return null;
  const reached = tile.begin + (tile.start[last] + tile.length[last]) * tile.tick;
  return { t0: Math.max(t0, tile.begin + tile.start[first] * tile.tick), t1: Math.min(t1, reached) };
}

/**
 * Find the slice of a lane at a moment; one that is thinner than the tolerance is found beside it.
 * @param {Tile} tile @param {number} lane @param {number} ns since the origin @param {number} toleranceNs
 * @returns {number} its row, -1 for none
 */
export function findInTile(tile, lane, ns, toleranceNs) {
  const range = tile.lanes.get(lane);
  if (!range) return -1;
  const ticks = (ns - tile.begin) / tile.tick;
  const tolerance = toleranceNs / tile.tick;
  const row = firstEndingAfter(tile, range[0], range[1], ticks);
  if (row < range[1] && tile.start[row] <= ticks) return row;
  const before = row > range[0] ? ticks - (tile.start[row - 1] + tile.length[row - 1]) : Infinity;
  const after = row < range[1] ? tile.start[row] - ticks : Infinity;
  if (Math.min(before, after) > tolerance) return -1;
  return before <= after ? row - 1 : row;
}
