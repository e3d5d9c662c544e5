// The list of runs: two to eight ticked runs can be compared; verdicts that were pending are filled in where they stand.
import { followRows } from "./run_rows.js";

/** As many as a comparison takes: the server refuses more. */
const MOST_COMPARED = 8;
const POLL_MS = 400;
const SLOWEST_MS = 5000;
/** A query has at most 64 fields and 8 KiB; the others are asked for as these are filled in. */
const ASKED_AT_ONCE = 50;
const LONGEST_QUERY = 6000;

/** @typedef {{label: string, sentence: string, kind: string, pending: boolean}} Verdict */

/**
 * @param {number} ticked
 * @returns {string} what the button says
 */
export function describeChoice(ticked) {
  if (ticked >= 2) return `Compare ${ticked} runs`;
  return ticked === 1 ? "Select one more to compare" : "Select runs to compare";
}

function installCompare() {
  const form = document.getElementById("compare");
  const button = form?.querySelector("[data-compare]");
  if (!(form instanceof HTMLFormElement) || !(button instanceof HTMLButtonElement)) return;
  const show = () => {
    const boxes = /** @type {NodeListOf<HTMLInputElement>} */ (form.querySelectorAll("input[name=run]"));
    const ticked = [...boxes].filter((box) => box.checked).length;
    button.disabled = ticked < 2;
    button.textContent = describeChoice(ticked);
    for (const box of boxes) box.disabled = ticked >= MOST_COMPARED && !box.checked;
  };
  form.addEventListener("change", show);
  addEventListener("pageshow", show);
  show();
}

/**
 * @param {string[]} ids
 * @returns {URLSearchParams} the query for as many of them, from the first on, as one can hold
 */
export function askFor(ids) {
  const query = new URLSearchParams();
  for (const id of ids.slice(0, ASKED_AT_ONCE)) {
    const longer = new URLSearchParams([...query, ["run", id]]);
    if (query.has("run") && longer.toString().length > LONGEST_QUERY) break;
    query.append("run", id);
  }
  return query;
}

let filling = false;

/** Fill in what is pending, until nothing is. */
async function fillVerdicts() {
  if (filling) return;
  filling = true;
  for (let wait = POLL_MS; await askVerdicts(); wait = Math.min(wait * 1.5, SLOWEST_MS)) {
    await new Promise((resolve) => setTimeout(resolve, wait));
  }
  filling = false;
}

/** @returns {Promise<boolean>} whether verdicts were pending */
async function askVerdicts() {
  const pending = /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("[data-verdict]"));
  if (pending.length === 0) return false;
  const query = askFor([...pending].map((cell) => cell.dataset.verdict ?? ""));
  try {
    const answer = await fetch(`/api/v1/verdicts?${query}`);
    if (answer.status >= 500) return true;
    const verdicts = answer.ok ? /** @type {Record<string, Verdict>} */ (await answer.json()) : {};
    for (const cell of [...pending].slice(0, query.getAll("run").length)) {
      const verdict = verdicts[cell.dataset.verdict ?? ""];
      if (verdict?.pending) continue;
      cell.textContent = verdict?.label ?? "n/a"; // the run is gone, or its name is longer than a query
      cell.title = verdict?.sentence ?? "";
      delete cell.dataset.verdict;
    }
  } catch {
    // The server may be restarting; asked again below.
  }
  return true;
}

if (typeof document !== "undefined") {
  installCompare();
  fillVerdicts();
  followRows(fillVerdicts);
}
