/**
 * Says what the cell of a heat map is that one points at.
 *
 * @typedef {{first: number[], size: number, ranks: number[], values: number[][], texts?: string[][], noun?: "step" | "batch"}} Cells
 * `values` are times in ns, -1 for nothing; `texts` say them where they are no times, `noun` what a step is called
 */

const UNITS = /** @type {const} */ ([[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]]);

/** @param {number} ns @returns {string} */
export function writeDuration(ns) {
  const [size, unit] = UNITS.find(([size]) => ns >= size) ?? [1, "ns"];
  return `${Number((ns / size).toPrecision(3))} ${unit}`;
}

/**
 * Return the rank and the first step of the cell at a place in the picture, null where there is none.
 * @param {Cells} cells @param {number} x @param {number} y
 */
export function findCell(cells, x, y) {
  const row = Math.min(Math.floor(y * cells.ranks.length), cells.ranks.length - 1);
  const column = Math.min(Math.floor(x * cells.first.length), cells.first.length - 1);
  const value = cells.values[row]?.[column];
  return value === undefined ? null : { rank: cells.ranks[row], step: cells.first[column], value };
}

/**
 * Return the sentence for a place in the picture; x and y are parts of its width and height.
 * @param {Cells} cells @param {number} x @param {number} y @returns {string}
 */
export function describeCell(cells, x, y) {
  const cell = findCell(cells, x, y);
  if (cell === null) return "";
  const { rank, step: first, value } = cell;
  const text = cells.texts?.[cells.ranks.indexOf(rank)]?.[cells.first.indexOf(first)];
  const noun = cells.noun ?? "step";
  const steps = cells.size > 1 ? `${noun === "batch" ? "batches" : "steps"} ${first}–${first + cells.size - 1}` : `${noun} ${first}`;
  return `Rank ${rank}, ${steps}: ${value < 0 ? (cells.texts ? "not recorded" : `no ${noun}`) : (text ?? writeDuration(value))}`;
}

/** The cells of each figure that was pointed at. @type {WeakMap<Element, Cells>} */
const known = new WeakMap();

/** @param {HTMLElement} figure @returns {Cells | null} */
function readCells(figure) {
  const block = document.getElementById(figure.dataset.heat ?? "");
  if (!known.has(figure) && block?.textContent) known.set(figure, JSON.parse(block.textContent));
  return known.get(figure) ?? null;
}

/**
 * Return the figure that an event points at, its cells, and where in its picture.
 * @param {MouseEvent} event
 */
function locate(event) {
  const image = event.target;
  const figure = image instanceof HTMLImageElement ? image.closest("[data-heat]") : null;
  if (!(figure instanceof HTMLElement) || !(image instanceof HTMLImageElement)) return null;
  const cells = readCells(figure);
  const box = image.getBoundingClientRect();
  return cells && { figure, cells, x: (event.clientX - box.left) / box.width, y: (event.clientY - box.top) / box.height };
}

/** Listens for all figures, also for those that a live run brings later. @param {PointerEvent} event */
function point(event) {
  const place = locate(event);
  const said = place?.figure.querySelector(".heat-said");
  if (place && said) said.textContent = describeCell(place.cells, place.x, place.y);
}

/** Open the step of a cell on the timeline of its rank. @param {MouseEvent} event */
function open(event) {
  const place = locate(event);
  const cell = place && findCell(place.cells, place.x, place.y);
  if (!place || !cell || cell.value < 0) return;
  const target = new URL(place.figure.dataset.timeline ?? "", location.href);
  target.searchParams.set("rank", String(cell.rank));
  target.searchParams.set("step", String(cell.step));
  location.assign(target.href);
}

if (typeof document !== "undefined") {
  document.addEventListener("pointermove", point);
  document.addEventListener("click", open);
}
