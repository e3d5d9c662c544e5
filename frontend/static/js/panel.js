// The suggestion panel: open or folded, as it was left.
import { readChoice, writeChoice } from "./storage.js";

export function installPanel() {
  const toggle = document.querySelector("[data-panel-toggle]");
  const body = document.getElementById("suggestions-body");
  if (!(toggle instanceof HTMLElement) || !body) return;
  /** @param {boolean} open */
  const show = (open) => {
    toggle.setAttribute("aria-expanded", String(open));
    body.hidden = !open;
  };
  show(readChoice("suggestions", "open") === "open");
  toggle.addEventListener("click", () => {
    const open = body.hidden;
    show(open);
    writeChoice("suggestions", open ? "open" : "folded");
  });
}
