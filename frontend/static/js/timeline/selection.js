// Selecting a slice or an area, marks, and going from one slice to another.
import { showArea, showNote, showSlice } from "./details.js";
import { byId } from "./dom.js";
import { rowOfLane } from "./layout.js";
import { toggleMark } from "./state.js";
import { duration } from "./text.js";
import { fit, pan, zoom } from "./view.js";

/** @typedef {import("./state.js").Place} Place */

const HINT = "Click a slice for its details. Shift and drag sums up an area.";

export class Selection {
  /** @param {import("./viewer.js").Viewer} viewer */
  constructor(viewer) {
    this.viewer = viewer;
    showNote(viewer.panel, HINT);
  }

  /** @param {number} x @param {number} y */
  point(x, y) {
    const found = this.viewer.hit(x, y);
    const many = found && (found.count ?? 1) > 1 ? ` and ${(found.count ?? 1) - 1} more here` : "";
    const { hover, canvas } = this.viewer;
    hover.hidden = !found;
    hover.textContent = found ? `${duration(found.length)}  ${found.whole}${many}` : "";
    if (found) {
      const right = x > canvas.clientWidth / 2;
      hover.style.left = right ? "auto" : `${canvas.offsetLeft + x + 14}px`;
      hover.style.right = right ? `${canvas.clientWidth - x + 14}px` : "auto";
      hover.style.top = `${y + this.viewer.scroller.scrollTop + 18}px`;
    }
    this.viewer.canvas.classList.toggle("pointing", found !== null);
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
    const chosen = { ...found, rank, count: merged };
    this.viewer.state.selected = chosen;
    this.viewer.state.area = null;
    if (move) this.reveal(found, rank);
    const source = this.viewer.state.sources.get(rank);
    const track = source?.meta.tracks.find((t) => t.firstLane <= found.lane && found.lane < t.firstLane + t.lanes);
    const at = { track: [track?.group, track?.name].filter(Boolean).join(": "), start: found.start + (source?.shift ?? 0) };
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
    const shift = state.sources.get(rank)?.shift ?? 0;
    if (!rowOfLane(state.rows, rank, place.lane)) {
      state.folded.clear();
      state.filter = "";
      byId("timeline-filter", HTMLInputElement).value = "";
      this.viewer.relayout();
    }
    const { t0, t1 } = state.span;
    const [start, end] = [place.start + shift, place.start + place.length + shift];
    const readable = place.length / this.viewer.nsPerPixel > 8 && end - start <= t1 - t0;
    if (!readable) this.viewer.show(zoom(fit(start, place.length), 3, (start + end) / 2));
    else if (start < t0 || end > t1) this.viewer.show(pan(state.span, (start + end - t0 - t1) / 2));
    const row = rowOfLane(state.rows, rank, place.lane);
    const top = this.viewer.scroller.scrollTop;
    if (row && (row.y < top || row.y + row.height > top + this.viewer.scroller.clientHeight)) {
      this.viewer.scroller.scrollTo(0, row.y - this.viewer.scroller.clientHeight / 2);
    }
  }

  fit() {
    const { selected, sources } = this.viewer.state;
    if (selected) this.viewer.show(fit(selected.start + (sources.get(selected.rank)?.shift ?? 0), selected.length));
  }

  /** @param {number} lanes @param {number} slices @returns {boolean} */
  step(lanes, slices) {
    const { selected, rows } = this.viewer.state;
    const box = selected && this.viewer.painter.boxOf(this.viewer.state, selected, this.viewer.scroller.scrollTop);
    if (!selected || !box) return false;
    const current = rows.findIndex((row) => row.kind === "lane" && row.rank === selected.rank && row.lane === selected.lane);
    const row = rows[current + lanes];
    if (!row || row.kind !== "lane") return true;
    const y = row.y - this.viewer.scroller.scrollTop + 2;
    const middle = Math.min(Math.max(box.x + box.width / 2, 1), this.viewer.canvas.clientWidth - 1);
    for (let far = 0; far < this.viewer.canvas.clientWidth; far += 2) {
      const x = slices ? (slices > 0 ? box.x + box.width + far : box.x - 1 - far) : middle + (far % 4 ? far : -far);
      const found = this.viewer.hit(x, y);
      if (found && found.id !== selected.id) return this.selectAt(x, y), true;
    }
    return true;
  }

  /** @param {number | null} x */
  mark(x) {
    const { selected } = this.viewer.state;
    const at = x === null && selected ? selected.start : this.viewer.timeAt(x ?? this.viewer.canvas.clientWidth / 2);
    this.viewer.state.marks = toggleMark(this.viewer.state.marks, at, 5 * this.viewer.nsPerPixel);
    this.viewer.keepAddress();
    this.viewer.dirty();
  }

  /** @param {{x: number, y: number, width: number, height: number}} box @param {boolean} done */
  async selectArea(box, done) {
    const { viewer } = this;
    const { state } = viewer;
    const top = box.y + viewer.scroller.scrollTop;
    const area = { t0: viewer.timeAt(box.x), t1: viewer.timeAt(box.x + box.width), y: top, height: box.height };
    state.area = area;
    viewer.dirty();
    if (!done) return;
    const inside = state.rows.filter((row) => row.kind === "lane" && row.y + row.height > top && row.y < top + box.height);
    const rank = inside[0]?.rank ?? viewer.main;
    const lanes = inside.filter((row) => row.rank === rank).map((row) => row.lane);
    if (!lanes.length) return this.clear();
    const shift = state.sources.get(rank)?.shift ?? 0;
    const times = { begin: String(Math.round(area.t0 - shift)), end: String(Math.round(area.t1 - shift)) };
    const range = { first: String(Math.min(...lanes)), last: String(Math.max(...lanes)) };
    const found = await viewer.ask("area", { ...times, ...range }, rank);
    state.selected = null;
    showArea(viewer.panel, found, area.t1 - area.t0, (name) => {
      viewer.search.field.value = name;
      viewer.search.restart();
    });
  }

  clear() {
    Object.assign(this.viewer.state, { selected: null, area: null });
    showNote(this.viewer.panel, HINT);
    this.viewer.keepAddress();
    this.viewer.dirty();
  }
}
