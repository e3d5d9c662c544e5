// Parts of a page that the server still computes: each is put in its place when it is there.
import { fetchPage } from "./growing.js";

const POLL_MS = 1500;
const SLOWEST_MS = 30000;

/**
 * Say how far a part has come that still waits. @param {Element} before @param {Element} after
 */
function putProgress(before, after) {
  const shown = before.querySelector("[data-progress]");
  const now = after.querySelector("[data-progress]");
  if (shown && now) shown.textContent = now.textContent;
}

/**
 * Put each part that has come in the place of the one that waits for it. Parts are marked `data-part="a name"`, and
 * `data-pending` while they wait.
 * @param {Document} fresh
 * @returns {boolean} whether the content of the page has changed
 */
function putParts(fresh) {
  let changed = false;
  for (const before of document.querySelectorAll("[data-pending]")) {
    const after = fresh.querySelector(`[data-part="${before.getAttribute("data-part")}"]`);
    if (!after) continue;
    if (after.hasAttribute("data-pending")) {
      putProgress(before, after);
      continue;
    }
    changed ||= before.closest("#content") !== null;
    before.replaceWith(document.importNode(after, true));
  }
  return changed;
}

export async function awaitParts() {
  let wait = POLL_MS;
  while (document.querySelector("[data-pending]")) {
    await new Promise((resolve) => setTimeout(resolve, document.hidden ? SLOWEST_MS : wait));
    const fresh = await fetchPage().catch(() => null);
    wait = fresh ? POLL_MS : Math.min(2 * wait, SLOWEST_MS);
    // Modules that draw listen for this.
    if (fresh && putParts(fresh)) document.dispatchEvent(new CustomEvent("stepscope:content"));
  }
}
