// The names beside the lanes: elements, so that they can be read, focused and folded.
import { make } from "./dom.js";

/** @typedef {import("./layout.js").Row} Row */

/**
 * @param {HTMLElement} sheet @param {Row[]} rows @param {(row: Row) => void} fold
 */
export function showLabels(sheet, rows, fold) {
  const shown = rows.filter((row) => row.label);
  sheet.replaceChildren(...shown.map((row) => makeLabel(row, fold)));
}

/** @param {Row} row @param {(row: Row) => void} fold */
function makeLabel(row, fold) {
  const foldable = row.kind === "rank" || row.kind === "group" || row.lanes > 1;
  const label = foldable
    ? make("button", { type: "button", "aria-expanded": String(!row.folded), "data-fold": row.key }, row.label)
    : make("span", {}, row.label);
  label.className = `track-label track-${row.kind}`;
  label.title = row.track ? `${row.track.group}: ${row.label}` : row.label;
  label.style.top = `${row.y}px`;
  label.style.height = `${row.height}px`;
  if (foldable) label.addEventListener("click", () => fold(row));
  return label;
}
