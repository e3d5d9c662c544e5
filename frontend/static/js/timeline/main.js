// Starts the timeline of the page: from the metadata that lies in it, or, while a large one is prepared, once it is there.
import { byId } from "./dom.js";
import { Growth } from "./growth.js";
import { unpackMeta } from "./meta.js";
import { download, openInPerfetto } from "./perfetto.js";
import { Viewer } from "./viewer.js";

/** @typedef {import("./meta.js").PackedMeta} PackedMeta */

const POLL_MS = 400;

/** @param {string} api @param {number} rank @param {HTMLElement} status @returns {Promise<PackedMeta>} */
async function waitForMeta(api, rank, status) {
  for (let waited = false; ; waited = true) {
    const answer = await fetch(`${api}/meta?rank=${rank}`);
    const found = await answer.json();
    if (answer.status === 200 && !waited) return found;
    // The page itself has more to say now: the totals, and the names with the most time.
    if (answer.status === 200) return location.reload(), new Promise(() => {});
    if (!answer.ok) throw new Error(explainFailure(found));
    status.textContent = `Preparing the timeline: ${Math.round(100 * found.building)} %. This is done once for a run.`;
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
}

/**
 * @param {{error?: {message?: string, remedy?: string}}} answer
 * @returns {string} why there is no timeline, and what to do about it
 */
function explainFailure({ error }) {
  const said = [error?.message ?? "The timeline cannot be prepared.", error?.remedy, "Reload the page to have it prepared again."];
  return said.filter(Boolean).join(" ");
}

/** @param {Viewer} viewer @param {string} api @param {string} title */
function installDownloads(viewer, api, title) {
  const detail = byId("timeline-detail", HTMLSelectElement);
  const extent = byId("timeline-extent", HTMLSelectElement);
  const address = () => {
    const query = new URLSearchParams({ detail: detail.value });
    if (viewer.state.ranks.length > 1) query.set("ranks", [...viewer.state.sources.keys()].join(","));
    if (viewer.state.sources.size > 1) query.set("one_clock", "true");
    if (extent.value === "window") {
      const { span, origin } = viewer.state;
      query.set("begin", String(Math.round(span.t0 + origin)));
      query.set("end", String(Math.round(span.t1 + origin)));
    }
    return `${api}/export?${query}`;
  };
  const told = byId("timeline-told", HTMLElement);
  const tell = (/** @type {string} */ text) => (told.textContent = text);
  byId("timeline-download", HTMLElement).addEventListener("click", () => download(address(), title, tell));
  byId("timeline-perfetto", HTMLElement).addEventListener("click", () => openInPerfetto(address(), title, tell));
}

async function start() {
  const root = document.getElementById("timeline");
  if (!root) return;
  const status = byId("timeline-status", HTMLElement);
  const { api = "", title = "run" } = root.dataset;
  const page = JSON.parse(document.getElementById("timeline-data")?.textContent ?? "{}");
  try {
    const meta = page.meta ?? (await waitForMeta(api, page.rank, status));
    root.hidden = false;
    status.hidden = true;
    const viewer = new Viewer(api, unpackMeta(meta), page);
    installDownloads(viewer, api, title);
    const growth = new Growth(viewer);
    document.addEventListener("stepscope:grown", (event) => {
      if (!root.isConnected) return;
      event.preventDefault();
      growth.take();
    });
    // For tests and measurements, which have no other way to wait for a frame.
    Object.assign(root, { viewer });
  } catch (error) {
    status.hidden = false;
    status.textContent = error instanceof Error ? error.message : String(error);
  }
}

start();
// The page of a run that has just begun has no timeline yet: it comes when the page is renewed.
document.addEventListener("stepscope:content", start);
