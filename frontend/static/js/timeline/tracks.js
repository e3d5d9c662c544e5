// The tracks beside the lanes: which are open, folded, pinned and let through by the filter.
import { say } from "../copy.js";
import { ownSpan } from "./clocks.js";
import { byId } from "./dom.js";
import { showLabels } from "./labels.js";
import { groupKey, layOut, listTracks, rankKey, trackKey } from "./layout.js";
import { unpackMeta } from "./meta.js";
import { neededTiles } from "./painter.js";
import { count } from "./text.js";
import { findReach } from "./tile.js";

/** @typedef {import("./layout.js").Row} Row */

const MOST_OPENED = 16;
const POLL_MS = 1000;
/** Kinds of track whose group stays unfolded where ranks are seen together. */
const COMPARED = new Set(["step", "phase", "range", "thread", "stream", "device"]);
const MOST_PINNED_FRAC = 0.6;
/** A track of several lanes that reaches over less of the view opens flat. */
const LEAST_REACH_FRAC = 0.05;

export class Tracks {
  /** @param {import("./viewer.js").Viewer} viewer */
  constructor(viewer) {
    this.viewer = viewer;
  }

  /** Lay the rows out anew. */
  lay() {
    const { state } = this.viewer;
    const { rows, pinned, pinnedHeight, height, shown, tracks } = layOut(state.ranks, state.sources, state);
    Object.assign(state, { rows, pinned, pinnedHeight });
    byId("timeline-sheet", HTMLElement).style.height = `${Math.max(height, this.viewer.scroller.clientHeight)}px`;
    const doing = { fold: (/** @type {Row} */ row) => this.fold(row), pin: (/** @type {Row} */ row) => this.pin(row.key), pins: state.pins };
    showLabels(byId("timeline-labels", HTMLElement), rows, doing);
    const pinnedSheet = byId("timeline-pinned", HTMLElement);
    pinnedSheet.style.height = `${pinnedHeight}px`;
    showLabels(pinnedSheet, pinned, doing);
    const found = shown ? `${count(shown)} of ${count(tracks)} tracks` : "no track";
    byId("timeline-filtered", HTMLElement).textContent = state.filter ? found : "";
    this.viewer.dirty();
  }

  /** @param {number} rank @returns {Promise<boolean>} whether it is open now */
  async openRank(rank) {
    const status = await this.tryRank(rank);
    if (status !== 200) say(status === 202 ? `Rank ${rank} is being prepared; try again in a moment` : `Rank ${rank} cannot be shown`);
    return status === 200;
  }

  /** @param {number} rank @returns {Promise<number>} 200 if it is open now, 202 while it is being prepared */
  async tryRank(rank) {
    const { viewer } = this;
    if (viewer.state.sources.has(rank)) return 200;
    const answer = await fetch(`${viewer.api}/meta?rank=${rank}`);
    if (answer.status !== 200) return answer.status;
    await this.askClock(rank);
    viewer.addSource(unpackMeta(await answer.json()));
    return 200;
  }

  /** Ask how a rank's clock stands to that of the page's rank, and say what is known of it. @param {number} rank */
  async askClock(rank) {
    const { state, main, api } = this.viewer;
    if (state.clocks.has(rank)) return;
    const others = [...state.sources.keys()].filter((open) => open !== main && open !== rank);
    const answer = await fetch(`${api}/clocks?ranks=${[main, rank, ...others].slice(0, MOST_OPENED).join(",")}`);
    if (!answer.ok) return;
    const { clocks, sentence } = await answer.json();
    for (const clock of clocks) if (!state.clocks.has(clock.rank)) state.clocks.set(clock.rank, clock);
    byId("timeline-clocks", HTMLElement).textContent = sentence;
  }

  /**
   * Open the ranks that were chosen, with what the loaders did and what is empty folded away unless the address says what
   * is folded. A large one that is being prepared keeps no other waiting.
   */
  async openTogether() {
    const folds = !new URLSearchParams(location.search).has("fold");
    for (let waiting = this.viewer.state.ranks; waiting.length; ) {
      const later = [];
      for (const rank of waiting) {
        const status = await this.tryRank(rank).catch(() => 0);
        if (status === 202) later.push(rank);
        else if (status !== 200) say(`Rank ${rank} cannot be shown`);
        else if (folds) this.foldBeside(rank);
      }
      waiting = later;
      if (later.length) await new Promise((resolve) => setTimeout(resolve, POLL_MS));
    }
    if (folds) for (const source of this.viewer.state.sources.values()) await this.foldEmpty(source);
    this.viewer.keepAddress();
  }

  /** Fold the groups of a rank that show neither steps nor threads nor a device. @param {number} rank */
  foldBeside(rank) {
    const { sources, folded } = this.viewer.state;
    const source = sources.get(rank);
    const tracks = source ? listTracks(source.meta) : [];
    const shown = new Set(tracks.filter(({ kind }) => COMPARED.has(kind)).map(({ group }) => group));
    for (const { group } of tracks) if (!shown.has(group)) folded.add(groupKey(rank, group));
    this.lay();
  }

  /** Fold the tracks of several lanes that have next to nothing in view: beside a short detailed window they are tall and empty. @param {import("./layout.js").Source} source */
  async foldEmpty(source) {
    const { state, store, painter, canvas } = this.viewer;
    const { level, numbers } = neededTiles(state, source, canvas.clientWidth);
    for (const number of numbers) await store.load(source, level, number);
    const [tiles, span] = [painter.tilesInView(state, source), ownSpan(source, state.span)];
    for (const track of source.meta.tracks) {
      const lanes = Array.from({ length: track.lanes }, (_, i) => track.firstLane + i);
      const reaches = lanes.flatMap((lane) => tiles.flatMap(({ tile }) => findReach(tile, lane, span) ?? []));
      const reach = Math.max(...reaches.map(({ t1 }) => t1)) - Math.min(...reaches.map(({ t0 }) => t0));
      if (track.lanes > 1 && !(reach >= LEAST_REACH_FRAC * (span.t1 - span.t0))) state.folded.add(trackKey(source.meta.rank, track));
    }
    this.lay();
  }

  /** @param {Row} row */
  async fold(row) {
    const { folded, sources } = this.viewer.state;
    if (row.kind === "rank" && !sources.has(row.rank)) {
      if (await this.openRank(row.rank)) folded.delete(row.key);
    } else if (!folded.delete(row.key)) folded.add(row.key);
    this.lay();
    this.viewer.keepAddress();
  }

  /** Fold every rank, or of a single one every track with several lanes. */
  foldAll() {
    const { ranks, sources, folded } = this.viewer.state;
    for (const source of sources.values()) {
      const { rank, tracks } = source.meta;
      if (ranks.length > 1) folded.add(rankKey(rank));
      else for (const track of tracks) if (track.lanes > 1) folded.add(trackKey(rank, track));
    }
    this.lay();
    this.viewer.keepAddress();
  }

  /** Unfold everything, and open the ranks that are not open yet, up to a number. */
  async unfoldAll() {
    const { ranks, folded } = this.viewer.state;
    folded.clear();
    this.lay();
    for (const rank of ranks.slice(0, MOST_OPENED)) await this.openRank(rank);
    if (ranks.length > MOST_OPENED) say(`The first ${MOST_OPENED} ranks are open; open others by their headings`);
    this.viewer.keepAddress();
  }

  /** Unfold what hides a lane, and drop the filter if it does. @param {number} rank @param {number} lane */
  uncover(rank, lane) {
    const { state } = this.viewer;
    const track = state.sources.get(rank)?.meta.tracks.find((t) => t.firstLane <= lane && lane < t.firstLane + t.lanes);
    if (!track) return;
    for (const key of [rankKey(rank), groupKey(rank, track.group), trackKey(rank, track)]) state.folded.delete(key);
    if (!`${track.group} ${track.name}`.toLowerCase().includes(state.filter)) this.filter("");
    byId("timeline-filter", HTMLInputElement).value = state.filter;
    this.lay();
  }

  /** Pin a track to the top, or let it go. @param {string} key */
  pin(key) {
    const { pins } = this.viewer.state;
    if (!pins.delete(key)) {
      pins.add(key);
      const { pinnedHeight } = layOut(this.viewer.state.ranks, this.viewer.state.sources, this.viewer.state);
      if (pinnedHeight > MOST_PINNED_FRAC * this.viewer.scroller.clientHeight) {
        pins.delete(key);
        say("The pinned tracks would leave no room for the others; unpin or fold one first");
      }
    }
    this.lay();
    this.viewer.keepAddress();
  }

  /** @param {string} text */
  filter(text) {
    this.viewer.state.filter = text.trim().toLowerCase();
    this.lay();
    this.viewer.keepAddress();
  }
}
