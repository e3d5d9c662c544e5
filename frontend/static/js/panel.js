// The suggestions: the short list beside every page, open or folded as it was left, and the card that an address names.
import { readChoice, writeChoice } from "./storage.js";

/** Unfold the card that the address points to. */
function openTarget() {
  const target = document.getElementById(location.hash.slice(1));
  if (!(target instanceof HTMLDetailsElement) || target.open) return;
  target.open = true;
  target.scrollIntoView({ block: "nearest" });
}

export function installPanel() {
  openTarget();
  addEventListener("hashchange", openTarget);
  document.addEventListener("stepscope:content", openTarget);
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
