// Selecting a slice, marks, and going from one slice to another.
import { toView } from "./clocks.js";
import { showNote, showSlice } from "./details.js";
import { rowOfLane, rowsBetween, trackKey } from "./layout.js";
import { toggleMark } from "./state.js";
import { duration } from "./text.js";
import { fit, pan, zoom } from "./view.js";

/** @typedef {import("./state.js").Place} Place */

const HINT = "Click a slice for its details, double-click to zoom to it. ? lists the keys.";

export class Selection {
  /** @param {import("./viewer.js").Viewer} viewer */
  constructor(viewer) {
    this.viewer = viewer;
    showNote(viewer.panel, HINT);
  }

  /** Show what is under the pointer; x is negative when it has left. @param {number} x @param {number} y */
  point(x, y) {
    const { hover, canvas, state } = this.viewer;
    const found = x < 0 ? null : this.viewer.hit(x, y);
    const text = found ? this.describe(found) : x < 0 ? "" : this.viewer.readCounter(x, y);
    state.cursor = x < 0 ? null : this.viewer.timeAt(x);
    this.viewer.dirty();
    hover.hidden = !text;
    hover.textContent = text;
    if (text) {
      const right = x > canvas.clientWidth / 2;
      hover.style.left = right ? "auto" : `${canvas.offsetLeft + x + 14}px`;
      hover.style.right = right ? `${canvas.clientWidth - x + 14}px` : "auto";
      const below = y + 18 + hover.offsetHeight < canvas.clientHeight;
      hover.style.top = `${(below ? y + 18 : y - 10 - hover.offsetHeight) + this.viewer.scroller.scrollTop}px`;
    }
    canvas.classList.toggle("pointing", found !== null);
  }

  /** @param {import("./state.js").Selected} found */
  describe(found) {
    const many = (found.count ?? 1) > 1 ? ` and ${(found.count ?? 1) - 1} more here` : "";
    return `${duration(found.length)}  ${found.whole}${many}`;
  }

  /** @param {number} x @param {number} y */
  selectAt(x, y) {
    this.viewer.canvas.focus({ preventScroll: true });
    const found = this.viewer.hit(x, y);
    if (!found) return this.clear();
    this.viewer.state.selected = found;
    this.viewer.dirty();
    this.select(found.id, found.rank, false, found.count);
  }

  /** Show a slice's details. @param {number} id @param {number} rank @param {boolean} move @param {number} [merged] */
  async select(id, rank, move, merged = 1) {
    const found = await this.viewer.ask("slice", { id: String(id) }, rank);
    if (!found) return;
    const chosen = { ...found, rank, count: merged };
    this.viewer.state.selected = chosen;
    if (move) this.reveal(found, rank);
    const source = this.viewer.state.sources.get(rank);
    const track = source?.meta.tracks.find((t) => t.firstLane <= found.lane && found.lane < t.firstLane + t.lanes);
    const at = { track: [track?.group, track?.name].filter(Boolean).join(": "), start: source ? toView(source, found.start) : found.start };
    showSlice(this.viewer.panel, chosen, at, (link) => this.select(link.id, rank, true), () => this.fit());
    this.viewer.keepAddress();
    this.viewer.dirty();
  }

  /** @param {Place} hit */
  goTo(hit) {
    return this.select(hit.id, this.viewer.main, true);
  }

  /** Bring a slice into view, unfolding its track. @param {Place} place @param {number} rank */
  reveal(place, rank) {
    const { state } = this.viewer;
    const source = state.sources.get(rank);
    if (!source) return;
    if (!rowOfLane(state.rows, rank, place.lane)) this.viewer.tracks.uncover(rank, place.lane);
    const { t0, t1 } = state.span;
    const [start, end] = [toView(source, place.start), toView(source, place.start + place.length)];
    const readable = place.length / this.viewer.nsPerPixel > 8 && end - start <= t1 - t0;
    if (!readable) this.viewer.show(zoom(fit(start, place.length), 3, (start + end) / 2));
    else if (start < t0 || end > t1) this.viewer.show(pan(state.span, (start + end - t0 - t1) / 2));
    const row = rowOfLane(state.rows, rank, place.lane);
    const { scrollTop: top, clientHeight } = this.viewer.scroller;
    if (!row || rowOfLane(state.pinned, rank, place.lane)) return;
    if (row.y < top + state.pinnedHeight || row.y + row.height > top + clientHeight) this.viewer.scroller.scrollTo(0, row.y - clientHeight / 2);
  }

  /** Zoom to the selected slice. */
  fit() {
    const { selected, sources } = this.viewer.state;
    const source = selected && sources.get(selected.rank);
    if (selected && source) this.viewer.show(fit(toView(source, selected.start), selected.length));
  }

  /** Pin the selection's track to the top, or let it go. */
  pin() {
    const { selected, sources } = this.viewer.state;
    const track = selected && sources.get(selected.rank)?.meta.tracks.find((t) => t.firstLane <= selected.lane && selected.lane < t.firstLane + t.lanes);
    if (selected && track) this.viewer.tracks.pin(trackKey(selected.rank, track));
  }

  /** @param {number} lanes @param {number} slices @returns {boolean} */
  step(lanes, slices) {
    const { viewer } = this;
    const { selected, rows, pinned, pinnedHeight } = viewer.state;
    const box = selected && viewer.painter.boxOf(viewer.state, selected, viewer.scroller.scrollTop);
    if (!selected || !box) return false;
    const list = box.pinned ? pinned : rows;
    let at = list.findIndex((row) => row.kind === "lane" && row.rank === selected.rank && row.lane === selected.lane) + lanes;
    while (lanes && list[at] && list[at].kind !== "lane") at += lanes;
    const row = list[at];
    if (!row) return true;
    if (!box.pinned) this.scrollTo(row, pinnedHeight);
    const y = row.y - (box.pinned ? 0 : viewer.scroller.scrollTop) + 2;
    const width = viewer.canvas.clientWidth;
    const middle = Math.min(Math.max(box.x + box.width / 2, 1), width - 1);
    for (let far = 0; far < width; far += 2) {
      const x = slices ? (slices > 0 ? box.x + box.width + far : box.x - 1 - far) : middle + (far % 4 ? far : -far);
      const found = viewer.hit(x, y);
      if (found && found.id !== selected.id) return this.selectAt(x, y), true;
    }
    return true;
  }

  /** @param {import("./layout.js").Row} row @param {number} pinnedHeight */
  scrollTo(row, pinnedHeight) {
    const { scroller } = this.viewer;
    const above = row.y - scroller.scrollTop - pinnedHeight;
    const below = row.y + row.height - scroller.scrollTop - scroller.clientHeight;
    if (above < 0 || below > 0) scroller.scrollBy(0, above < 0 ? above : below);
  }

  /** Select the slice in the middle of the uppermost lane that has one, for those who have no pointer. @returns {boolean} */
  enter() {
    const { viewer } = this;
    const { scrollTop, clientHeight } = viewer.scroller;
    const [first, last] = rowsBetween(viewer.state.rows, scrollTop + viewer.state.pinnedHeight, scrollTop + clientHeight);
    for (const row of viewer.state.rows.slice(first, last)) {
      const y = row.y - scrollTop + 2;
      for (let far = 0; row.kind === "lane" && y > viewer.state.pinnedHeight && far < viewer.canvas.clientWidth / 2; far += 3) {
        const x = viewer.canvas.clientWidth / 2 + (far % 2 ? far : -far);
        if (viewer.hit(x, y)) return this.selectAt(x, y), true;
      }
    }
    return false;
  }

  /** @param {number | null} x */
  mark(x) {
    const { selected, sources } = this.viewer.state;
    const source = selected && sources.get(selected.rank);
    const at = x === null && source ? toView(source, selected.start) : this.viewer.timeAt(x ?? this.viewer.canvas.clientWidth / 2);
    this.viewer.state.marks = toggleMark(this.viewer.state.marks, at, 5 * this.viewer.nsPerPixel);
    this.viewer.keepAddress();
    this.viewer.dirty();
  }

  clear() {
    this.viewer.state.selected = null;
    showNote(this.viewer.panel, HINT);
    this.viewer.keepAddress();
    this.viewer.dirty();
  }
}
