// Traces that lie below the base directory: a click imports one, and its run appears in the list above.
import { cancelImport, describeState, followImport } from "./imports.js";

/** One line of the table. */
class Offer {
  /** @param {HTMLTableRowElement} row @param {HTMLElement} table */
  constructor(row, table) {
    this.row = row;
    this.addresses = { start: table.dataset.address ?? "", state: table.dataset.state ?? "" };
    this.button = /** @type {HTMLButtonElement} */ (row.querySelector("[data-import-trace]"));
    this.state = /** @type {HTMLElement} */ (row.querySelector(".offer-state"));
    this.cancel = /** @type {HTMLButtonElement} */ (row.querySelector("[data-cancel-import]"));
    /** @type {string | undefined} */
    this.id = undefined;
    this.cancel?.addEventListener("click", () => {
      if (this.id) cancelImport(this.addresses.state, this.id).catch(() => {});
    });
  }

  async start() {
    await this.run(async () => {
      const answer = await fetch(this.addresses.start, {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body: `{"files": ${this.row.dataset.files}}`,
      });
      const body = await answer.json();
      if (!answer.ok) throw new Error(body.error?.message ?? `The server answered ${answer.status}.`);
      return body.id;
    });
  }

  /** @param {() => Promise<string>} findId */
  async run(findId) {
    this.button.disabled = true;
    this.say("Waiting");
    try {
      this.id = await findId();
      this.cancel.hidden = false;
      const href = await followImport(this.addresses.state, this.id, (job) => {
        this.say(`${describeState(job)}, ${Math.round(100 * job.progress_frac)} %`);
      });
      this.link(href);
    } catch (error) {
      this.button.disabled = false;
      this.say(error instanceof Error ? error.message : String(error), true);
      return;
    } finally {
      this.cancel.hidden = true;
    }
    // Without an answer the list stays as it is: the link to the run is there.
    await renewList().catch(() => {});
  }

  /** @param {string} href */
  link(href) {
    const anchor = document.createElement("a");
    anchor.href = href;
    anchor.textContent = "Open run";
    this.button.replaceWith(anchor);
    this.say("Imported");
  }

  /** @param {string} text @param {boolean} [failed] */
  say(text, failed = false) {
    this.state.textContent = text;
    this.state.classList.toggle("failed", failed);
  }
}

/** Fetch the list again and show what is new in it. What one ticked or scrolled to stays as it is. */
async function renewList() {
  const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
  if (!answer.ok) return;
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  const [list, freshList] = [document, fresh].map((page) => page.querySelector("#compare tbody"));
  if (list && freshList) addRows(list, freshList);
  else if (freshList) location.reload();
  const summary = document.querySelector("#offers summary");
  if (summary) summary.textContent = fresh.querySelector("#offers summary")?.textContent ?? "All traces are imported";
  document.dispatchEvent(new CustomEvent("stepscope:runs"));
}

/** @param {Element} list @param {Element} fresh */
function addRows(list, fresh) {
  const known = new Map([...list.children].map((row) => [findRun(row), row]));
  /** @type {Element | undefined} */
  let above;
  for (const row of fresh.children) {
    let shown = known.get(findRun(row));
    if (!shown) {
      shown = document.importNode(row, true);
      if (above) above.after(shown);
      else list.prepend(shown);
    }
    above = shown;
  }
}

/** @param {Element} row */
function findRun(row) {
  return row.querySelector("input")?.value;
}

function install() {
  const table = document.getElementById("offers");
  if (!table) return;
  for (const row of /** @type {NodeListOf<HTMLTableRowElement>} */ (table.querySelectorAll("[data-files]"))) {
    const offer = new Offer(row, table);
    if (!offer.button) continue;
    offer.button.addEventListener("click", () => offer.start());
    const id = row.dataset.import;
    if (id) offer.run(() => Promise.resolve(id));
  }
}

install();
