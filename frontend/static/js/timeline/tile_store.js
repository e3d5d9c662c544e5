// Fetches tiles, keeps those that were used lately, and finds a coarser one while a finer is on its way.
import { colorTile } from "./colors.js";
import { decodeTile } from "./tile.js";

/** @typedef {import("./tile.js").Tile} Tile */
/** @typedef {import("./layout.js").Source} Source */

const AT_ONCE = 4;
const KEPT_BYTES = 160e6;
const RETRY_MS = 3000;

/** @param {{rank: number, stamp: string}} meta @param {number} level @param {number} number */
const keyOf = (meta, level, number) => `${meta.rank}/${meta.stamp}/${level}/${number}`;

export class TileStore {
  /**
   * @param {string} api address of the timeline's routes
   * @param {{ground: number}} palette
   * @param {() => void} changed called when a tile came
   * @param {(error: string) => void} failed
   */
  constructor(api, palette, changed, failed) {
    this.api = api;
    this.palette = palette;
    this.changed = changed;
    this.failed = failed;
    /** @type {Map<string, Tile>} */
    this.tiles = new Map();
    /** @type {Set<string>} */
    this.pending = new Set();
    /** @type {[Source, number, number][]} */
    this.wanted = [];
    this.bytes = 0;
    /** Milliseconds from request to decoded tile, for measuring. @type {number[]} */
    this.times = [];
  }

  /** @param {Source} source @param {number} level @param {number} number @returns {Tile | undefined} */
  find(source, level, number) {
    return this.tiles.get(keyOf(source.meta, level, number));
  }

  /**
   * Return the finest coarser tile that covers a tile.
   * @param {Source} source @param {number} level @param {number} number @returns {Tile | undefined}
   */
  findCoarser(source, level, number) {
    for (let up = 1; level + up <= source.meta.topLevel; up++) {
      const tile = this.find(source, level + up, Math.floor(number / 2 ** up));
      if (tile) return tile;
    }
    return undefined;
  }

  /** Ask for tiles, the most wanted first; what was asked for before and is not yet on its way is dropped. @param {[Source, number, number][]} wanted */
  want(wanted) {
    this.wanted = wanted.filter(([source, level, number]) => {
      const key = keyOf(source.meta, level, number);
      const tile = this.tiles.get(key);
      if (!tile) return !this.pending.has(key);
      this.tiles.delete(key);
      this.tiles.set(key, tile);
      return false;
    });
    this.pump();
  }

  pump() {
    while (this.pending.size < AT_ONCE && this.wanted.length) {
      const [source, level, number] = /** @type {[Source, number, number]} */ (this.wanted.shift());
      this.fetch(source, level, number);
    }
  }

  /** @param {Source} source @param {number} level @param {number} number */
  async fetch(source, level, number) {
    const key = keyOf(source.meta, level, number);
    this.pending.add(key);
    const began = performance.now();
    try {
      const answer = await fetch(tileAddress(this.api, source.meta, level, number));
      if (!answer.ok) throw new Error((await answer.json()).error?.message ?? `status ${answer.status}`);
      this.put(source, key, decodeTile(await answer.arrayBuffer()));
      this.times.push(performance.now() - began);
      this.pending.delete(key);
    } catch (error) {
      this.failed(error instanceof Error ? error.message : String(error));
      setTimeout(() => this.pending.delete(key), RETRY_MS);
    }
    this.changed();
    this.pump();
  }

  /** @param {Source} source @param {string} key @param {Tile} tile */
  put(source, key, tile) {
    colorTile(tile, source.colors, this.palette.ground);
    this.tiles.set(key, tile);
    this.bytes += tile.bytes;
    for (const [old, found] of this.tiles) {
      if (this.bytes < KEPT_BYTES || old === key) break;
      this.tiles.delete(old);
      this.bytes -= found.bytes;
    }
  }

  /** Fetch one tile now, whatever the view wants. @param {Source} source @param {number} level @param {number} number */
  async load(source, level, number) {
    if (!this.find(source, level, number)) await this.fetch(source, level, number);
  }

  /** Forget the tiles of a rank as it was. @param {Source} source */
  drop(source) {
    const own = keyOf(source.meta, 0, 0).slice(0, -"0/0".length);
    for (const [key, tile] of this.tiles) {
      if (!key.startsWith(own)) continue;
      this.tiles.delete(key);
      this.bytes -= tile.bytes;
    }
  }

  /** Colour every tile again, for another theme. @param {Map<number, Source>} sources @param {{ground: number}} palette */
  recolor(sources, palette) {
    this.palette = palette;
    for (const [key, tile] of this.tiles) {
      const source = sources.get(Number(key.split("/")[0]));
      if (source) colorTile(tile, source.colors, palette.ground);
    }
  }
}

/** @param {string} api @param {{rank: number, stamp: string}} meta @param {number} level @param {number} number */
export function tileAddress(api, meta, level, number) {
  return `${api}/tile?rank=${meta.rank}&stamp=${meta.stamp}&level=${level}&number=${number}`;
}
