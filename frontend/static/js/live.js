// A run that records: the badge in the top bar counts its steps. The page itself changes only when asked to, or while
// "Follow" is ticked, and then in place: what one looks at stays where it is.
import { fetchPage, putGrowing } from "./growing.js";
import { readChoice, writeChoice } from "./storage.js";

const POLL_MS = 2000;
const SLOWEST_MS = 30000;

/** @typedef {{state: string, steps: number, stamp: string}} Live */

/** @param {number} steps */
export function countSteps(steps) {
  return `${steps.toLocaleString("en")} ${steps === 1 ? "step" : "steps"}`;
}

/**
 * Fetch this page again and put its content in the place of the old one. Modules that draw listen for
 * `stepscope:content`, whose detail is the new element.
 */
async function renewContent() {
  const fresh = await fetchPage();
  if (!fresh) return;
  const [x, y] = [scrollX, scrollY];
  const content = document.getElementById("content");
  // The old height is held while charts are drawn again: a page that shrinks for a moment would scroll.
  if (content) content.style.minHeight = `${content.offsetHeight}px`;
  for (const selector of ["#content", ".suggestions"]) {
    const [before, after] = [document.querySelector(selector), fresh.querySelector(selector)];
    if (before && after) before.replaceChildren(...after.childNodes);
  }
  scrollTo(x, y);
  document.dispatchEvent(new CustomEvent("stepscope:content", { detail: content }));
}

/** Say above the page that its run was deleted; what is shown stays. */
function sayGone() {
  const banner = document.createElement("p");
  banner.className = "banner banner-bad";
  banner.setAttribute("role", "alert");
  banner.textContent = "This run is gone: its folder is no longer below the base directory. Shown is what was last read.";
  document.getElementById("content")?.prepend(banner);
}

export function installLive() {
  const badge = document.querySelector("[data-live]");
  if (!(badge instanceof HTMLElement)) return;
  const steps = badge.querySelector("[data-live-steps]");
  const update = badge.querySelector("[data-live-update]");
  const follow = badge.querySelector("[data-live-follow]");
  if (!steps || !(update instanceof HTMLElement) || !(follow instanceof HTMLInputElement)) return;
  /** @type {string | undefined} */
  let shown;
  let wait = POLL_MS;
  follow.checked = readChoice("follow", "no") === "yes";
  follow.addEventListener("change", () => writeChoice("follow", follow.checked ? "yes" : "no"));

  const renew = async () => {
    shown = undefined;
    update.hidden = true;
    await renewContent();
  };
  const poll = async () => {
    try {
      const answer = await fetch(badge.dataset.live ?? "");
      if (answer.status === 404) {
        steps.textContent = "gone";
        update.hidden = true;
        return sayGone();
      }
      if (!answer.ok) throw new Error(`status ${answer.status}`);
      const live = /** @type {Live} */ (await answer.json());
      wait = POLL_MS;
      steps.textContent = countSteps(live.steps);
      shown ??= live.stamp;
      const changed = live.stamp !== shown;
      if (live.state !== "recording") return location.reload();
      // A page that takes in by itself what has grown says so by preventing the default.
      const taken = changed && !document.dispatchEvent(new CustomEvent("stepscope:grown", { cancelable: true }));
      if (taken) shown = live.stamp;
      if (changed && !taken && follow.checked) await renew();
      else update.hidden = taken || !changed;
      // A detailed window that was asked for is shown once it was taken, also where the page does not follow.
      const fresh = changed && document.querySelector("[data-awaited]") && (await fetchPage());
      if (fresh) putGrowing(fresh);
    } catch {
      wait = Math.min(2 * wait, SLOWEST_MS);
      steps.textContent = "no answer from the server";
    }
    setTimeout(poll, document.hidden ? SLOWEST_MS : wait);
  };
  update.addEventListener("click", renew);
  poll();
}
