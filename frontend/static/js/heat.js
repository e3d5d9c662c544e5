/**
 * Says what the cell of a heat map is that one points at.
 *
 * @typedef {{first: number[], size: number, ranks: number[], values: number[][]}} Cells times in ns, -1 for nothing
 */

const UNITS = /** @type {const} */ ([[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]]);

/** @param {number} ns @returns {string} */
export function writeDuration(ns) {
  const [size, unit] = UNITS.find(([size]) => ns >= size) ?? [1, "ns"];
  return `${Number((ns / size).toPrecision(3))} ${unit}`;
}

/**
 * Return the sentence for a place in the picture; x and y are parts of its width and height.
 * @param {Cells} cells @param {number} x @param {number} y @returns {string}
 */
export function describeCell(cells, x, y) {
  const row = Math.min(Math.floor(y * cells.ranks.length), cells.ranks.length - 1);
  const column = Math.min(Math.floor(x * cells.first.length), cells.first.length - 1);
  const first = cells.first[column];
  const value = cells.values[row]?.[column];
  if (first === undefined || value === undefined) return "";
  const steps = cells.size > 1 ? `steps ${first}–${first + cells.size - 1}` : `step ${first}`;
  return `Rank ${cells.ranks[row]}, ${steps}: ${value < 0 ? "no step" : writeDuration(value)}`;
}

/** The cells of each figure that was pointed at. @type {WeakMap<Element, Cells>} */
const known = new WeakMap();

/** @param {HTMLElement} figure @returns {Cells | null} */
function readCells(figure) {
  const block = document.getElementById(figure.dataset.heat ?? "");
  if (!known.has(figure) && block?.textContent) known.set(figure, JSON.parse(block.textContent));
  return known.get(figure) ?? null;
}

/** Listens for all figures, also for those that a live run brings later. @param {PointerEvent} event */
function point(event) {
  const image = event.target;
  if (!(image instanceof HTMLImageElement)) return;
  const figure = image.closest("[data-heat]");
  const said = figure?.querySelector(".heat-said");
  const cells = figure instanceof HTMLElement ? readCells(figure) : null;
  if (!said || !cells) return;
  const box = image.getBoundingClientRect();
  said.textContent = describeCell(cells, (event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height);
}

if (typeof document !== "undefined") document.addEventListener("pointermove", point);
