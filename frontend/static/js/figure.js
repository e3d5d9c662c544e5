/**
 * Draws every `figure.chart` of a page with Plotly, when it comes into view, in the colours of the theme.
 *
 * The figure's dict lies in the JSON block that `data-figure` names. `data-source` is the address that redraws the
 * chart for a range of x, `data-group` links the zoom of several charts.
 *
 * @typedef {{data: object[], layout: Record<string, any>}} Figure
 */

import { readTable, saveCsv, writeCsv } from "./csv.js";

/** @type {any} */
const Plotly = /** @type {any} */ (globalThis).Plotly;
const CONFIG = { displayModeBar: false, responsive: false, doubleClick: "reset", showTips: false };
const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif';

/** A colour of the palette, with or without two digits of opacity. */
const HEX = /^#[0-9a-f]{6}([0-9a-f]{2})?$/;

/**
 * Return a copy of a figure with every light colour replaced by its dark one.
 * @param {any} value @param {Record<string, string>} dark @returns {any}
 */
export function recolor(value, dark) {
  if (typeof value === "string") {
    if (!HEX.test(value)) return value;
    const base = dark[value.slice(0, 7)];
    return base ? base + value.slice(7) : value;
  }
  if (Array.isArray(value)) {
    return typeof value[0] === "number" ? value : value.map((item) => recolor(item, dark));
  }
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(
    Object.entries(value).map(([key, item]) => [key, key === "meta" ? item : recolor(item, dark)]),
  );
}

/** @param {string} color as computed by the browser: `rgb(r, g, b)`. @returns {boolean} */
export function isDark(color) {
  const [red, green, blue] = (color.match(/[\d.]+/g) ?? ["255", "255", "255"]).map(Number);
  return 0.299 * red + 0.587 * green + 0.114 * blue < 128;
}

/**
 * Return what the user zoomed to, null for a change that is no zoom, "all" for the whole.
 * @param {Record<string, any>} change as Plotly's relayout event gives it
 * @returns {[number, number] | "all" | null}
 */
export function readZoom(change) {
  if (change["xaxis.autorange"]) return "all";
  const range = change["xaxis.range"] ?? [change["xaxis.range[0]"], change["xaxis.range[1]"]];
  return range.every(Number.isFinite) ? [range[0], range[1]] : null;
}

/**
 * Return a layout with the text, grid and hover colours of the ground that the chart stands on.
 * @param {Record<string, any>} layout @param {HTMLElement} plot
 */
function themeLayout(layout, plot) {
  const style = getComputedStyle(plot);
  const ground = groundOf(plot);
  const grid = isDark(ground) ? "#30363d" : "#e4e8ec";
  const axis = (/** @type {any} */ own = {}) => ({
    gridcolor: grid,
    linecolor: grid,
    automargin: true,
    ...own,
    title: { ...own.title, font: { size: 12 } },
  });
  return {
    ...layout,
    width: plot.clientWidth,
    height: plot.clientHeight,
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: FONT, size: 12, color: style.color },
    hoverlabel: { bgcolor: ground, bordercolor: grid, font: { color: style.color, size: 12 }, align: "left" },
    ...(layout.xaxis && { xaxis: axis(layout.xaxis), yaxis: axis(layout.yaxis) }),
  };
}

/** Return the first ground behind an element that is not transparent. @param {Element | null} element */
function groundOf(element) {
  for (let at = element; at; at = at.parentElement) {
    const color = getComputedStyle(at).backgroundColor;
    if (color !== "transparent" && !color.endsWith(", 0)")) return color;
  }
  return matchMedia("(prefers-color-scheme: dark)").matches ? "rgb(13, 17, 23)" : "rgb(255, 255, 255)";
}

/** One chart of the page. */
class ChartView {
  /** @param {HTMLElement} element */
  constructor(element) {
    this.element = element;
    this.plot = /** @type {HTMLElement} */ (element.querySelector(".chart-plot"));
    this.whole = readBlock(element.dataset.figure ?? "");
    this.shown = this.whole;
    /** @type {[number, number] | null} */
    this.range = null;
    this.drawn = false;
    this.asked = 0;
    element.querySelector("[data-chart-png]")?.addEventListener("click", () => this.savePng());
    element.querySelector("[data-chart-csv]")?.addEventListener("click", () => this.saveCsv());
    this.resetButton = /** @type {HTMLButtonElement | null} */ (element.querySelector("[data-chart-reset]"));
    this.resetButton?.addEventListener("click", () => this.announce("all"));
  }

  async draw() {
    if (!this.shown || !this.plot.clientWidth) return;
    if (!Plotly) {
      this.element.dataset.state = "failed";
      this.plot.textContent = "The chart could not be drawn: its library did not load. Its data is in the table below.";
      return;
    }
    const dark = isDark(groundOf(this.plot));
    const figure = dark ? recolor(this.shown, this.shown.layout.meta?.dark ?? {}) : this.shown;
    // Plotly writes into what it is given: it gets copies.
    const layout = themeLayout(structuredClone(figure.layout), this.plot);
    if (this.range) layout.xaxis = { ...layout.xaxis, range: this.range, autorange: false };
    await Plotly.react(this.plot, structuredClone(figure.data), layout, CONFIG);
    if (!this.drawn) {
      this.drawn = true;
      this.element.dataset.state = "drawn";
      /** @type {any} */ (this.plot).on("plotly_relayout", (/** @type {any} */ change) => {
        const zoom = readZoom(change);
        if (zoom) this.announce(zoom);
      });
      /** @type {any} */ (this.plot).on("plotly_click", (/** @type {any} */ { points }) => {
        const { x, y } = points[0];
        this.element.dispatchEvent(new CustomEvent("stepscope:point", { bubbles: true, detail: { x, y } }));
      });
    }
  }

  /** Tell every chart of the group where the user zoomed to. @param {[number, number] | "all"} zoom */
  announce(zoom) {
    const [first, last] = this.whole?.layout.xaxis?.range ?? [Infinity, -Infinity];
    if (zoom !== "all" && zoom[0] <= first && zoom[1] >= last) zoom = "all";
    const group = this.element.dataset.group;
    for (const view of views.values()) {
      if (view === this || (group && view.element.dataset.group === group)) view.zoom(zoom);
    }
  }

  /** @param {[number, number] | "all"} zoom */
  async zoom(zoom) {
    this.range = zoom === "all" ? null : zoom;
    if (this.resetButton) this.resetButton.hidden = zoom === "all";
    if (zoom === "all") this.shown = this.whole;
    const asked = ++this.asked;
    if (zoom !== "all" && this.element.dataset.source) {
      const finer = await this.fetchRange(zoom);
      if (asked !== this.asked) return;
      if (finer) this.shown = finer;
    }
    if (this.drawn) await this.draw();
  }

  /** Ask the server for the points of a range. @param {[number, number]} range @returns {Promise<Figure | null>} */
  async fetchRange(range) {
    const address = new URL(/** @type {string} */ (this.element.dataset.source), location.href);
    address.searchParams.set("from", String(Math.floor(range[0])));
    address.searchParams.set("to", String(Math.ceil(range[1])));
    const answer = await fetch(address).catch(() => null);
    this.element.dataset.stale = answer?.ok ? "" : "true";
    return answer?.ok ? answer.json() : null;
  }

  savePng() {
    const { clientWidth: width, clientHeight: height } = this.plot;
    Plotly.downloadImage(this.plot, { format: "png", width, height, scale: 2, filename: this.fileName() });
  }

  saveCsv() {
    const table = this.element.querySelector("details table");
    if (table) saveCsv(this.fileName(), writeCsv(readTable(table)));
  }

  fileName() {
    return (this.element.dataset.name ?? "chart").replace(/[^\w.-]+/g, "-").slice(0, 80);
  }
}

/** @param {string} id @returns {Figure | null} */
function readBlock(id) {
  const block = document.getElementById(id);
  return block?.textContent ? JSON.parse(block.textContent) : null;
}

/** Every chart of the page by its figure. @type {Map<Element, ChartView>} */
const views = new Map();

function redrawAll() {
  for (const view of views.values()) if (view.drawn) view.draw();
}

/** Call at most once a frame, after the styles of a new theme have settled. @param {() => void} action */
function nextFrame(action) {
  let waiting = false;
  return () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      action();
    });
  };
}

/** @type {IntersectionObserver | undefined} */
let seen;
/** @type {ResizeObserver | undefined} */
let resized;

/** @param {IntersectionObserverEntry[]} entries */
function drawSeen(entries) {
  for (const entry of entries) {
    if (!entry.isIntersecting) continue;
    seen?.unobserve(entry.target);
    views.get(/** @type {Element} */ (entry.target.closest("figure.chart")))?.draw();
  }
}

/** Draw the charts below `root` when they are seen. May be called again when content was exchanged. @param {ParentNode} root */
export function watchCharts(root) {
  seen ??= new IntersectionObserver(drawSeen, { rootMargin: "200px" });
  resized ??= new ResizeObserver(nextFrame(redrawAll));
  for (const [element, view] of views) {
    if (element.isConnected) continue;
    resized.unobserve(view.plot);
    views.delete(element);
  }
  for (const element of /** @type {NodeListOf<HTMLElement>} */ (root.querySelectorAll("figure.chart"))) {
    if (views.has(element)) continue;
    const view = new ChartView(element);
    views.set(element, view);
    seen.observe(view.plot);
    resized.observe(view.plot);
  }
}

if (typeof document !== "undefined") {
  watchCharts(document);
  document.addEventListener("stepscope:content", () => watchCharts(document));
  document.addEventListener("stepscope:theme", nextFrame(redrawAll));
  // At once, and those too that were not seen yet: what is printed is what is there when this returns.
  document.addEventListener("stepscope:paper", () => views.forEach((view) => view.draw()));
}
