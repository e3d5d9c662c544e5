// A run that records: takes in what it has grown by. Metadata and tiles come first and are put in place together, so
// that nothing flickers and nothing moves.
import { fetchPage, putGrowing } from "../growing.js";
import { stretch } from "./clocks.js";
import { trackKey } from "./layout.js";
import { unpackMeta } from "./meta.js";
import { neededTiles } from "./painter.js";
import { findInTile } from "./tile.js";

/** @typedef {import("./layout.js").Source} Source */
/** @typedef {import("./viewer.js").Viewer} Viewer */

const REST = 4;
const LEAST_REST_MS = 3000;

export class Growth {
  /** @param {Viewer} viewer */
  constructor(viewer) {
    this.viewer = viewer;
    this.running = false;
    this.wanted = false;
  }

  /** Take in what there is now; what comes while that goes on is taken in after a rest. */
  async take() {
    this.wanted = true;
    if (this.running) return;
    this.running = true;
    while (this.wanted) {
      this.wanted = false;
      const began = performance.now();
      // The page first: it holds the totals of what is drawn right after.
      const fresh = await fetchPage().catch(() => null);
      for (const source of [...this.viewer.state.sources.values()]) await this.renew(source).catch(() => {});
      if (fresh) putGrowing(fresh);
      // Building anew costs the server time: it rests several times as long as that took.
      await new Promise((resolve) => setTimeout(resolve, Math.max(LEAST_REST_MS, REST * (performance.now() - began))));
    }
    this.running = false;
  }

  /** @param {Source} before */
  async renew(before) {
    const { viewer } = this;
    const answer = await fetch(`${viewer.api}/meta?rank=${before.meta.rank}`);
    if (answer.status !== 200) return;
    const after = viewer.makeSource(unpackMeta(await answer.json()));
    if (after.meta.stamp === before.meta.stamp) return;
    const { level, numbers } = neededTiles(viewer.state, after, viewer.canvas.clientWidth);
    await viewer.store.load(after, after.meta.topLevel, 0);
    for (const number of numbers) await viewer.store.load(after, level, number);
    this.exchange(before, after);
  }

  /** @param {Source} before @param {Source} after */
  exchange(before, after) {
    const { state, scroller } = this.viewer;
    const top = scroller.scrollTop;
    state.sources.set(after.meta.rank, after);
    stretch(state);
    this.viewer.critical.offer();
    if (state.selected?.rank === after.meta.rank) this.carry(state.selected, before, after);
    this.viewer.store.drop(before);
    this.viewer.tracks.lay();
    scroller.scrollTop = top;
  }

  /** Find the selected slice again: lanes and numbers of slices may have changed. @param {import("./state.js").Selected} selected @param {Source} before @param {Source} after */
  carry(selected, before, after) {
    const moved = before.meta.origin - after.meta.origin;
    for (const place of [selected, ...(selected.links ?? [])]) {
      place.lane = findLane(place.lane, before, after);
      place.start += moved;
    }
    const { level, numbers } = neededTiles(this.viewer.state, after, this.viewer.canvas.clientWidth);
    for (const number of numbers) {
      const tile = this.viewer.store.find(after, level, number);
      const row = tile ? findInTile(tile, selected.lane, selected.start, 0) : -1;
      if (tile && row >= 0 && Math.abs(tile.begin + tile.start[row] * tile.tick - selected.start) <= tile.tick) selected.id = tile.id[row];
    }
  }
}

/** @param {number} lane @param {Source} before @param {Source} after @returns {number} -1 if its track is gone */
function findLane(lane, before, after) {
  const own = before.meta.tracks.find((track) => track.firstLane <= lane && lane < track.firstLane + track.lanes);
  const key = own && trackKey(0, own);
  const same = after.meta.tracks.find((track) => trackKey(0, track) === key);
  return own && same ? same.firstLane + lane - own.firstLane : -1;
}
