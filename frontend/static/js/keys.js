// Keys of every page: ? help, / search, g and a key for a page, [ and ] for the step before and after.
// Single-letter keys can be switched off (WCAG 2.1.4); a page's own module asks keysAreOn() before it takes one.
import { readChoice, writeChoice } from "./storage.js";

const PREFIX_MS = 1500;

/** @returns {boolean} */
export function keysAreOn() {
  return readChoice("keys", "on") === "on";
}

/**
 * Whether a key press belongs to what has the focus, or to the browser.
 * @param {KeyboardEvent} event
 */
export function isTyping(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return true;
  const target = event.target;
  return target instanceof Element && target.closest("input, select, textarea, [contenteditable], dialog[open]") !== null;
}

/** @param {string} key */
function openPage(key) {
  if (key === "l") location.assign("/");
  const links = /** @type {NodeListOf<HTMLAnchorElement>} */ (document.querySelectorAll(".nav a[data-key]"));
  for (const link of links) if (link.dataset.key === key) link.click();
}

/** @param {"prev" | "next"} direction */
function openStep(direction) {
  const link = document.querySelector(`a[data-step="${direction}"]`);
  if (link instanceof HTMLAnchorElement) link.click();
}

function focusSearch() {
  const field = document.querySelector("[data-search]");
  if (!(field instanceof HTMLInputElement)) return false;
  field.focus();
  field.select();
  return true;
}

function openHelp() {
  const help = document.getElementById("help");
  if (help instanceof HTMLDialogElement && !help.open) help.showModal();
}

export function installKeys() {
  let prefixUntil = 0;
  document.addEventListener("keydown", (event) => {
    if (isTyping(event) || !keysAreOn()) return;
    const afterPrefix = event.timeStamp < prefixUntil;
    prefixUntil = 0;
    if (afterPrefix) openPage(event.key);
    else if (event.key === "g") prefixUntil = event.timeStamp + PREFIX_MS;
    else if (event.key === "?") openHelp();
    else if (event.key === "/" && focusSearch()) event.preventDefault();
    else if (event.key === "[") openStep("prev");
    else if (event.key === "]") openStep("next");
  });
  document.querySelector("[data-open-help]")?.addEventListener("click", openHelp);
  const toggle = document.querySelector("[data-keys-switch]");
  if (toggle instanceof HTMLInputElement) {
    toggle.checked = keysAreOn();
    toggle.addEventListener("change", () => writeChoice("keys", toggle.checked ? "on" : "off"));
  }
}
