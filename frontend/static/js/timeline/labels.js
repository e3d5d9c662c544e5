// The names beside the lanes: elements, so that they can be read, focused, folded and pinned.
import { make } from "./dom.js";
import { NAME_HEIGHT } from "./layout.js";

/** @typedef {import("./layout.js").Row} Row */
/** @typedef {{fold: (row: Row) => void, pin: (row: Row) => void, pins: Set<string>}} Doing */

/** @param {HTMLElement} sheet @param {Row[]} rows @param {Doing} doing */
export function showLabels(sheet, rows, doing) {
  const focused = focusIn(sheet);
  sheet.replaceChildren(...rows.filter((row) => row.label).map((row) => makeLabel(row, doing)));
  // What had the focus is a new element now; it keeps the focus.
  if (focused) /** @type {HTMLElement | null} */ (sheet.querySelector(focused))?.focus({ preventScroll: true });
}

/** @param {HTMLElement} sheet @returns {string} what finds the focused button again, empty for none */
function focusIn(sheet) {
  const focused = document.activeElement;
  if (!(focused instanceof HTMLElement) || !sheet.contains(focused)) return "";
  const name = focused.dataset.fold ? "fold" : "pin";
  return `[data-${name}="${CSS.escape(focused.dataset[name] ?? "")}"]`;
}

/** @param {Row} row @param {Doing} doing */
function makeLabel(row, doing) {
  const foldable = row.kind === "rank" || row.kind === "group" || row.lanes > 1;
  const name = foldable
    ? make("button", { type: "button", class: "track-fold", "aria-expanded": String(!row.folded), "data-fold": row.key }, row.label)
    : make("span", { class: "track-name" }, row.label);
  if (foldable) name.addEventListener("click", () => doing.fold(row));
  name.title = row.track ? `${row.track.group}: ${row.track.name}` : row.label;
  const label = make("div", { class: `track-label track-${row.kind}` }, name);
  if (row.track) label.append(makePin(row, doing));
  label.style.top = `${row.y}px`;
  label.style.height = `${Math.max(row.height, NAME_HEIGHT)}px`;
  return label;
}

/** @param {Row} row @param {Doing} doing */
function makePin(row, doing) {
  const isPinned = doing.pins.has(row.key);
  const text = isPinned ? `Unpin ${row.track?.name}` : `Pin ${row.track?.name} to the top`;
  const pin = make("button", { type: "button", class: "track-pin", "aria-pressed": String(isPinned), "aria-label": text, "data-pin": row.key });
  pin.title = text.length > 120 ? `${text.slice(0, 120)}…` : text;
  pin.addEventListener("click", () => doing.pin(row));
  return pin;
}
