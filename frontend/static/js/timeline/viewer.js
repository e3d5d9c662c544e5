// The timeline on the page: ties state, tiles, painter, input, search and details together.
import { say } from "../copy.js";
import { noteClock, placeRank, stretch, toOwn } from "./clocks.js";
import { colorNames, readPalette } from "./colors.js";
import { valueAt } from "./counters.js";
import { Critical } from "./critical.js";
import { byId } from "./dom.js";
import { installInput } from "./input.js";
import { rowAt } from "./layout.js";
import { Minimap } from "./overview.js";
import { Painter } from "./painter.js";
import { drawRuler, installRuler } from "./ruler.js";
import { Search } from "./search.js";
import { Selection } from "./selection.js";
import { readQuery, writeQuery } from "./state.js";
import { findInTile } from "./tile.js";
import { TileStore } from "./tile_store.js";
import { Tracks } from "./tracks.js";
import { amount, duration } from "./text.js";
import { clamp, pan, zoom } from "./view.js";

/** @typedef {import("./layout.js").Meta} Meta */
/** @typedef {import("./state.js").State} State */

const ADDRESS_PAUSE_MS = 250;
const HIT_PIXELS = 3;

export class Viewer {
  /**
   * @param {string} api @param {Meta} meta of the rank that the page shows
   * @param {{ranks: number[], span?: [number, number], together?: boolean, clocks?: import("./clocks.js").Clock[]}} page
   */
  constructor(api, meta, { ranks, span, together = false, clocks = [] }) {
    this.api = api;
    this.main = meta.rank;
    this.canvas = byId("timeline-lanes", HTMLCanvasElement);
    this.scroller = byId("timeline-scroll", HTMLElement);
    this.panel = byId("timeline-details", HTMLElement);
    this.hover = byId("timeline-hover", HTMLElement);
    const palette = readPalette(document.documentElement);
    /** @type {State} */
    this.state = {
      ranks, sources: new Map(), main: meta.rank, origin: meta.origin, whole: Math.max(meta.span, 1), span: { t0: 0, t1: Math.max(meta.span, 1) },
      rows: [], pinned: [], pinnedHeight: 0, folded: new Set(), pins: new Set(), filter: "", selected: null, marks: [], cursor: null, critical: null, palette,
      together, clocks: new Map(clocks.map((clock) => [clock.rank, clock])),
    };
    /** What is dragged over on the ruler. @type {{t0: number, t1: number} | null} */
    this.chosen = null;
    this.store = new TileStore(api, palette, () => this.dirty(), (text) => say(text));
    this.painter = new Painter(this.canvas, this.store);
    this.minimap = new Minimap(byId("timeline-map", HTMLCanvasElement), (t0, t1) => this.show({ t0, t1 }));
    this.search = new Search(byId("timeline-search", HTMLFormElement), (q) => this.ask("search", q), (hit) => this.selection.goTo(hit), () => this.keepAddress());
    if (ranks.length > 1) this.search.field.placeholder = `Search rank ${meta.rank}`;
    this.selection = new Selection(this);
    this.tracks = new Tracks(this);
    this.frame = 0;
    this.keeping = 0;
    /** Script time of each frame and when the first whole one stood, for measuring. */
    this.timing = { draws: /** @type {number[]} */ ([]), firstPaint: 0 };
    this.addSource(meta);
    this.openAddress();
    this.listen();
    if (span) this.show({ t0: span[0] - meta.origin, t1: span[1] - meta.origin });
    this.critical = new Critical(this);
  }

  /** @param {Meta} meta */
  addSource(meta) {
    this.state.sources.set(meta.rank, this.makeSource(meta));
    stretch(this.state);
    this.tracks.lay();
  }

  /** @param {Meta} meta @returns {import("./layout.js").Source} */
  makeSource(meta) {
    const categories = meta.nameCategories.map((number) => meta.categories[number]);
    const colors = colorNames(meta.names, categories, this.state.palette, meta.phaseColors);
    const { state } = this;
    const clock = meta.rank === this.main ? undefined : state.clocks.get(meta.rank);
    const first = state.sources.get(this.main)?.meta.origin ?? state.origin;
    return { meta, ...placeRank(meta, clock, state.origin, first), note: noteClock(clock, duration), colors };
  }

  async openAddress() {
    const asked = readQuery(location.search);
    const { state } = this;
    state.marks = asked.marks.map((mark) => mark - state.origin);
    if (asked.t0 !== null && asked.t1 !== null && asked.t1 > asked.t0) {
      state.span = clamp({ t0: asked.t0 - state.origin, t1: asked.t1 - state.origin }, state.whole);
    }
    Object.assign(state, { pins: new Set(asked.pins), folded: new Set(asked.folded), filter: asked.filter.toLowerCase() });
    byId("timeline-filter", HTMLInputElement).value = asked.filter;
    this.search.field.value = asked.text;
    this.tracks.lay();
    if (asked.text) this.search.restart();
    if (state.together) await this.tracks.openTogether();
    else for (const rank of asked.open) if (state.ranks.includes(rank)) await this.tracks.openRank(rank);
    // Loading the page again keeps its lanes where they are; a selection that is out of view is scrolled to after that.
    if (Number.isFinite(history.state?.timelineTop)) this.scroller.scrollTop = history.state.timelineTop;
    const rank = asked.selected?.rank ?? this.main;
    if (asked.selected && state.sources.has(rank)) this.selection.select(asked.selected.id, rank, asked.t0 === null);
  }

  listen() {
    new ResizeObserver(() => this.tracks.lay()).observe(this.scroller);
    const scrolled = () => {
      this.keepAddress();
      this.dirty();
    };
    this.scroller.addEventListener("scroll", scrolled, { passive: true });
    document.addEventListener("stepscope:theme", () => this.recolor());
    byId("timeline-filter", HTMLInputElement).addEventListener("input", (event) => this.tracks.filter(/** @type {HTMLInputElement} */ (event.target).value));
    byId("timeline-fold", HTMLElement).addEventListener("click", () => this.tracks.foldAll());
    byId("timeline-unfold", HTMLElement).addEventListener("click", () => this.tracks.unfoldAll());
    const zoomAt = (/** @type {number} */ factor, /** @type {number} */ x) => this.show(zoom(this.state.span, factor, this.timeAt(x)));
    installRuler(byId("timeline-ruler", HTMLCanvasElement), {
      timeAt: (x) => this.timeAt(x),
      choose: (span, done) => {
        this.chosen = done ? null : span;
        if (done && span) this.show(span);
        this.dirty();
      },
      zoom: zoomAt,
    });
    installInput(this.canvas, {
      zoom: zoomAt,
      pan: (pixels) => this.show(pan(this.state.span, pixels * this.nsPerPixel)),
      scroll: (pixels) => this.scroller.scrollBy(0, pixels),
      select: (x, y) => this.selection.selectAt(x, y),
      point: (x, y) => this.selection.point(x, y),
      open: (x, y) => this.hit(x, y) && this.selection.fit(),
      step: (lanes, slices) => this.selection.step(lanes, slices),
      enter: () => this.selection.enter(),
      fit: () => this.selection.fit(),
      pin: () => this.selection.pin(),
      all: () => this.show({ t0: 0, t1: this.state.whole }),
      mark: (x) => this.selection.mark(x),
      clear: () => this.selection.clear(),
    });
  }

  get nsPerPixel() {
    return (this.state.span.t1 - this.state.span.t0) / Math.max(this.canvas.clientWidth, 1);
  }

  /** @param {number} x @returns {number} ns since the origin */
  timeAt(x) {
    return this.state.span.t0 + x * this.nsPerPixel;
  }

  /** @param {{t0: number, t1: number}} span */
  show(span) {
    this.state.span = clamp(span, this.state.whole);
    this.keepAddress();
    this.dirty();
  }

  dirty() {
    this.frame ||= requestAnimationFrame(() => this.draw());
  }

  draw() {
    this.frame = 0;
    const began = performance.now();
    this.painter.draw(this.state, this.scroller.scrollTop, this.scroller.clientHeight);
    drawRuler(byId("timeline-ruler", HTMLCanvasElement), this.state, this.chosen);
    const source = this.state.sources.get(this.main);
    if (source) this.minimap.draw(this.state, this.store.find(source, source.meta.topLevel, 0), source.shift);
    byId("timeline-shown", HTMLElement).textContent = `${duration(this.state.span.t1 - this.state.span.t0)} shown`;
    this.timing.draws.push(performance.now() - began);
    if (this.timing.draws.length > 2000) this.timing.draws.splice(0, 1000);
    if (!this.timing.firstPaint && (this.painter.strips.painted || !this.painter.missing)) this.timing.firstPaint = performance.now();
    this.canvas.dataset.missing = String(this.painter.missing);
    this.canvas.dataset.painted = String(this.painter.strips.painted);
  }

  recolor() {
    this.state.palette = readPalette(document.documentElement);
    for (const source of this.state.sources.values()) source.colors = this.makeSource(source.meta).colors;
    this.store.recolor(this.state.sources, this.state.palette);
    this.dirty();
  }

  keepAddress() {
    clearTimeout(this.keeping);
    this.keeping = setTimeout(() => {
      history.replaceState({ ...history.state, timelineTop: this.scroller.scrollTop }, "", location.pathname + writeQuery(location.search, this.state, this.search.text));
      document.dispatchEvent(new CustomEvent("stepscope:span", { detail: this.state }));
    }, ADDRESS_PAUSE_MS);
  }

  /** @param {string} route @param {Record<string, string>} query @param {number} [rank] @returns {Promise<any>} null after it was said why there is no answer */
  async ask(route, query, rank = this.main) {
    const stamp = this.state.sources.get(rank)?.meta.stamp ?? "";
    try {
      const answer = await fetch(`${this.api}/${route}?${new URLSearchParams({ rank: String(rank), stamp, ...query })}`);
      const found = await answer.json();
      if (answer.ok) return found;
      say(found.error?.message ?? "The server did not answer");
    } catch {
      say("The server did not answer");
    }
    return null;
  }

  /** @param {number} y on the canvas @returns {import("./layout.js").Row | null} */
  rowAt(y) {
    const { rows, pinned, pinnedHeight } = this.state;
    return y < pinnedHeight ? rowAt(pinned, y) : rowAt(rows, y + this.scroller.scrollTop);
  }

  /** @param {number} x @param {number} y @returns {import("./state.js").Selected | null} the slice at a pixel */
  hit(x, y) {
    const row = this.rowAt(y);
    const source = row && this.state.sources.get(row.rank);
    if (!row || !source || row.kind !== "lane") return null;
    const ns = toOwn(source, this.timeAt(x));
    for (const { tile, from, to } of this.painter.tilesInView(this.state, source)) {
      if (ns < from || ns >= to) continue;
      const i = findInTile(tile, row.lane, ns, HIT_PIXELS * this.nsPerPixel);
      if (i < 0) return null;
      const start = tile.begin + tile.start[i] * tile.tick;
      const place = { id: tile.id[i], place: -1, lane: row.lane, start, length: tile.length[i] * tile.tick, name: tile.name[i] };
      return { ...place, rank: row.rank, count: tile.count[i], whole: source.meta.names[tile.name[i]] };
    }
    return null;
  }

  /** @param {number} x @param {number} y @returns {string} what a counter under the pointer reads, empty where there is none */
  readCounter(x, y) {
    const row = this.rowAt(y);
    const source = row && this.state.sources.get(row.rank);
    if (!row?.track || !source || row.kind !== "counter") return "";
    const ns = toOwn(source, this.timeAt(x));
    const piece = this.painter.tilesInView(this.state, source).find(({ from, to }) => ns >= from && ns < to);
    const value = piece ? valueAt(piece.tile, row.lane, ns) : null;
    return value === null ? "" : `${row.track.name}: ${amount(value, row.track.unit)}`;
  }
}
