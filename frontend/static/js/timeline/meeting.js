// A collective on every rank that is open: where it stands, who came last, and how long the others waited.
import { classOf } from "./colors.js";
import { button, make, table } from "./dom.js";
import { count, duration } from "./text.js";

/** @typedef {import("./state.js").Selected} Selected */
/** @typedef {import("./state.js").State} State */
/** @typedef {{rank: number, late: number, waited: number, length: number, place: import("./state.js").Place | null}} Arrival */
/** @typedef {{name: string, sentence: string, count: number, arrivals: Arrival[]}} Meeting arrivals in their order */

const MOST_ASKED = 16;

/** @param {Selected} slice @param {import("./layout.js").Source} source @returns {boolean} whether it may be a collective */
export function mayMeet(slice, source) {
  return classOf(slice.category ?? "", slice.whole ?? "", source.meta.phaseColors) === "communication";
}

/**
 * @param {import("./viewer.js").Viewer} viewer @param {Selected} slice
 * @returns {Promise<Meeting | null>} null for what is no collective of several ranks
 */
export async function askMeeting(viewer, slice) {
  const ranks = [...new Set([slice.rank, ...viewer.state.sources.keys()])].slice(0, MOST_ASKED).join(",");
  const query = { start: String(slice.start), length: String(slice.length), ranks };
  const found = await viewer.ask("meeting", query, slice.rank);
  return found?.arrivals.length ? found : null;
}

/**
 * @param {Meeting} meeting @param {(rank: number, place: import("./state.js").Place) => void} follow
 * @returns {[HTMLElement, HTMLElement]} who was waited for, and who came when
 */
export function showMeeting(meeting, follow) {
  const rows = meeting.arrivals.map(({ rank, late, waited, length, place }) => [
    place ? button(`rank ${rank}`, () => follow(rank, place)) : `rank ${rank}`,
    late ? `+${duration(late)}` : "first",
    waited ? duration(waited) : "came last",
    duration(length),
  ]);
  const more = meeting.count - meeting.arrivals.length;
  const rest = more > 0 ? [make("p", { class: "muted" }, `and ${count(more)} ranks in between`)] : [];
  const heads = ["Rank", "Came", "Waited for the last", "In the call"];
  const list = make("section", { class: "slice-meeting", "aria-label": "The ranks in this collective" }, table(heads, rows, [1, 2, 3]), ...rest);
  return [make("p", {}, meeting.sentence), list];
}

/**
 * Outline the call of every rank that is in view, and join their begins from rank to rank.
 * @param {CanvasRenderingContext2D} g @param {State} state
 * @param {(slice: {rank: number, lane: number, start: number, length: number}) => {x: number, y: number, width: number, height: number} | null} boxOf
 */
export function drawMeeting(g, state, boxOf) {
  const places = (state.meeting?.arrivals ?? []).flatMap(({ rank, place }) => (place ? [{ ...place, rank }] : []));
  const boxes = places.map((place) => ({ place, box: boxOf(place) }));
  const shown = boxes.flatMap(({ box }) => (box ? [box] : [])).sort((a, b) => a.y - b.y);
  if (shown.length < 2) return;
  g.save();
  g.strokeStyle = state.palette.accent;
  g.lineWidth = 2;
  for (const { x, y, width, height } of shown) g.strokeRect(x - 1, y - 1, Math.max(width, 2) + 2, height + 1);
  g.setLineDash([4, 3]);
  g.lineWidth = 1.5;
  g.beginPath();
  shown.forEach(({ x, y, height }, i) => {
    if (i) g.lineTo(x, y);
    g.moveTo(x, y + height);
  });
  g.stroke();
  g.restore();
}
