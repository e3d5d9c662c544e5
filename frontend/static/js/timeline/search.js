// The search field: match count, next and previous. The server has an index by name, so any size answers at once.
import { onPause } from "../forms.js";
import { count } from "./text.js";

/** @typedef {import("./state.js").Place} Place */
/** @typedef {{count: number, names: number, number: number, hit: Place | null}} Found */

export class Search {
  /**
   * @param {HTMLFormElement} form @param {(query: Record<string, string>) => Promise<Found | null>} ask
   * @param {(hit: Place) => void} show @param {() => void} changed
   */
  constructor(form, ask, show, changed) {
    this.ask = ask;
    this.show = show;
    this.changed = changed;
    this.field = /** @type {HTMLInputElement} */ (form.querySelector("input[type=search]"));
    this.output = /** @type {HTMLOutputElement} */ (form.querySelector("output"));
    /** @type {Place | null} */
    this.at = null;
    this.asked = 0;
    this.last = Promise.resolve();
    /** What `at` is a match of. */
    this.searched = "";
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.go("next");
    });
    this.field.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.clear();
      if (event.key === "Enter" && event.shiftKey) {
        event.preventDefault();
        this.go("previous");
      }
    });
    onPause(this.field, () => this.restart());
    form.querySelector("[data-previous]")?.addEventListener("click", () => this.go("previous"));
  }

  get text() {
    return this.field.value.trim();
  }

  /** The browser's own way to empty the field says nothing where it has lost the focus. */
  clear() {
    this.field.value = "";
    this.field.blur();
    this.restart();
  }

  /** Count the matches of a new text, without moving the view. */
  async restart() {
    if (this.text === this.searched) return;
    this.changed();
    await this.run("next", false);
  }

  /** @param {"next" | "previous"} direction */
  async go(direction) {
    // One after the other: a second press goes on from what the first one found.
    this.last = this.last.then(() => this.run(direction, true)).catch(() => {});
    await this.last;
    this.changed();
  }

  /** @param {"next" | "previous"} direction @param {boolean} move */
  async run(direction, move) {
    const asked = ++this.asked;
    if (this.text !== this.searched) this.at = null;
    this.searched = this.text;
    if (!this.text) return void (this.output.textContent = "");
    /** @type {Record<string, string>} */
    const after = this.at ? { start: String(this.at.start), place: String(this.at.place) } : {};
    const found = await this.ask({ q: this.text, direction, ...after });
    if (asked !== this.asked || !found) return;
    if (!found.count) return void (this.output.textContent = "no match");
    const matches = `${count(found.count)} match${found.count === 1 ? "" : "es"}`;
    this.output.textContent = move ? `${count(found.number)} of ${matches}` : matches;
    if (!move || !found.hit) return;
    this.at = found.hit;
    this.show(found.hit);
  }
}
