// The panel below the lanes: one slice in full.
import { button, make } from "./dom.js";
import { column, count, duration, moment, shorten } from "./text.js";

/** @typedef {import("./state.js").Selected} Selected */
/** @typedef {import("./state.js").Link} Link */

const SHOWN_NAME = 220;
const HIDDEN_ARGS = new Set(["table", "row"]);

/**
 * @param {HTMLElement} panel @param {Selected} slice @param {{track: string, start: number}} at
 * @param {(link: Link) => void} follow @param {() => void} fit
 */
export function showSlice(panel, slice, at, follow, fit) {
  const facts = make("dl", { class: "slice-facts" });
  /** @param {string} name @param {...(Node | string)} value */
  const add = (name, ...value) => facts.append(make("dt", {}, name), make("dd", {}, ...value));
  const name = slice.whole ?? "";
  const merged = (slice.count ?? 1) > 1;
  add("Duration", duration(slice.length), slice.kind ? compareToKind(slice) : "");
  add("Start", moment(at.start, Math.max(slice.length / 100, 1)));
  add("Category", slice.category ?? "");
  add("Track", at.track);
  if (slice.step !== null && slice.step !== undefined) add("Step", String(slice.step));
  const args = Object.entries(slice.args ?? {}).filter(([key]) => !HIDDEN_ARGS.has(key));
  for (const [key, value] of args.map(([key, value]) => column(key, value))) add(key, showValue(value));
  const title = make("h3", { title: name }, shorten(name, SHOWN_NAME));
  const head = make("header", {}, title, button("Zoom to it (F)", fit));
  const note = merged ? [make("p", { class: "muted" }, `The longest of ${count(slice.count ?? 1)} slices that are drawn as one at this zoom. Press W to tell them apart.`)] : [];
  const parts = [head, ...note, make("div", { class: "slice-body" }, facts, ...showLinks(slice, follow))];
  if (name.length > SHOWN_NAME) parts.push(make("details", {}, make("summary", {}, "Whole name"), make("pre", { class: "raw" }, name)));
  panel.replaceChildren(...parts);
}

/** @param {Selected} slice */
function compareToKind(slice) {
  const kind = slice.kind ?? { count: 1, mean: 0, longest: 0 };
  if (kind.count < 2) return make("span", { class: "muted" }, "  the only one of its kind");
  const ratio = kind.mean ? slice.length / kind.mean : 1;
  const text = `  ${ratio.toFixed(2)} × the mean of all ${count(kind.count)} slices of this name (${duration(kind.mean)}, longest ${duration(kind.longest)})`;
  return make("span", { class: "muted" }, text);
}

/** @param {unknown} value */
function showValue(value) {
  const text = typeof value === "object" ? JSON.stringify(value) : String(value);
  if (text.includes("\n")) return make("pre", { class: "raw" }, text);
  return make("span", { title: text }, shorten(text, 400));
}

/** @param {Selected} slice @param {(link: Link) => void} follow */
function showLinks(slice, follow) {
  const links = slice.links ?? [];
  if (!links.length) return [];
  const items = links.slice(0, 24).map((link) => {
    const label = `${shorten(link.whole, 90)} (${duration(link.length)})`;
    return make("li", {}, make("span", { class: "muted" }, `${link.relation} `), button(label, () => follow(link), link.whole));
  });
  const more = links.length - items.length + (slice.linksLeftOut ?? 0);
  if (more > 0) items.push(make("li", { class: "muted" }, `and ${count(more)} more`));
  const heading = make("p", { class: "muted" }, "Linked slices");
  return [make("div", {}, heading, make("ul", { class: "slice-links", "aria-label": "Linked slices" }, ...items))];
}

/** @param {HTMLElement} panel @param {string} text */
export function showNote(panel, text) {
  panel.replaceChildren(make("p", { class: "muted" }, text));
}
