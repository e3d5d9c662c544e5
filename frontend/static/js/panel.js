// The suggestion panel: open or folded, as it was left.
import { readChoice, writeChoice } from "./storage.js";

const POLL_MS = 1500;

/** While a large run is judged in the background, ask for the panel until it is there. @param {HTMLElement} body */
async function awaitJudgement(body) {
  while (body.querySelector("[data-panel-pending]")) {
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
    const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
    if (!answer.ok) return;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("suggestions-body");
    if (fresh) body.replaceChildren(...fresh.childNodes);
  }
}

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
  awaitJudgement(body);
  toggle.addEventListener("click", () => {
    const open = body.hidden;
    show(open);
    writeChoice("suggestions", open ? "open" : "folded");
  });
}
