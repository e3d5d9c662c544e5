/**
 * Makes links and forms of a `[data-swap]` region change it in place: the server's page is fetched and the region
 * exchanged. Without this module the same links and forms load the page as usual.
 */

const TYPING_PAUSE_MS = 150;

/**
 * Return the address that a GET form would go to; empty fields are left out.
 * @param {string} action @param {Iterable<[string, unknown]>} fields
 */
export function addressOf(action, fields) {
  const address = new URL(action);
  const filled = [...fields].filter(([, value]) => value !== "");
  address.search = new URLSearchParams(filled.map(([name, value]) => [name, String(value)])).toString();
  return address.href;
}

/** Say whether a click asks for something else than to follow the link here. @param {Pick<MouseEvent, "button" | "ctrlKey" | "metaKey" | "shiftKey" | "altKey">} event */
export function opensElsewhere(event) {
  return event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey;
}

/** One region that is exchanged as a whole. */
class SwapRegion {
  /** @param {HTMLElement} element */
  constructor(element) {
    this.element = element;
    /** @type {AbortController | null} */
    this.running = null;
    this.timer = 0;
    element.addEventListener("click", (event) => this.click(event));
    element.addEventListener("submit", (event) => this.submit(event));
    element.addEventListener("input", (event) => this.type(event));
    addEventListener("popstate", () => this.show(location.href, null));
  }

  /** @param {MouseEvent} event */
  click(event) {
    const link = /** @type {Element} */ (event.target).closest("a[data-swap-link]");
    if (!(link instanceof HTMLAnchorElement) || opensElsewhere(event)) return;
    event.preventDefault();
    this.show(link.href, "push");
  }

  /** @param {SubmitEvent} event */
  submit(event) {
    const form = event.target;
    if (!(form instanceof HTMLFormElement) || !form.matches("[data-swap-form]")) return;
    event.preventDefault();
    clearTimeout(this.timer);
    this.show(addressOf(form.action, new FormData(form)), "push");
  }

  /** Search while one types; the address is replaced, so that Back does not go letter by letter. @param {Event} event */
  type(event) {
    const form = /** @type {HTMLInputElement} */ (event.target).form;
    if (!form?.matches("[data-swap-form]")) return;
    clearTimeout(this.timer);
    this.timer = window.setTimeout(() => this.show(addressOf(form.action, new FormData(form)), "replace"), TYPING_PAUSE_MS);
  }

  /** @param {string} address @param {"push" | "replace" | null} history_ */
  async show(address, history_) {
    this.running?.abort();
    const running = (this.running = new AbortController());
    this.element.setAttribute("aria-busy", "true");
    try {
      const answer = await fetch(address, { signal: running.signal });
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const fresh = page.getElementById(this.element.id);
      if (!answer.ok || !fresh) throw new Error(`${answer.status}`);
      if (history_ === "push") history.pushState(null, "", address);
      if (history_ === "replace") history.replaceState(null, "", address);
      this.exchange(fresh);
    } catch (error) {
      if (!running.signal.aborted) location.assign(address);
    } finally {
      if (this.running === running) this.element.removeAttribute("aria-busy");
    }
  }

  /** Put the new content in, keeping what one is typing and where the focus was. @param {Element} fresh */
  exchange(fresh) {
    const focused = this.element.contains(document.activeElement) ? document.activeElement : null;
    const name = focused instanceof HTMLElement ? focused.dataset.focus : undefined;
    const typed = focused instanceof HTMLInputElement ? { text: focused.value, at: focused.selectionStart } : null;
    const chart = this.element.querySelector("figure.chart");
    const figure = readFigure(this.element);
    this.element.replaceChildren(...fresh.childNodes);
    const drawn = this.element.querySelector("figure.chart");
    if (chart && drawn && figure === readFigure(this.element)) drawn.replaceWith(chart);
    document.dispatchEvent(new CustomEvent("stepscope:content"));
    const target = name === undefined ? undefined : findFocus(this.element, name);
    target?.focus({ preventScroll: true });
    if (typed && target instanceof HTMLInputElement) {
      target.value = typed.text;
      target.setSelectionRange(typed.at, typed.at);
    }
  }
}

/** Return the data of the region's chart, so that one that did not change is not drawn again. @param {Element} region */
function readFigure(region) {
  return region.querySelector('figure.chart script[type="application/json"]')?.textContent ?? "";
}

/** Return the control of the fresh content that one had the focus on. @param {Element} region @param {string} name */
function findFocus(region, name) {
  const all = /** @type {NodeListOf<HTMLElement>} */ (region.querySelectorAll("[data-focus]"));
  return [...all].find((element) => element.dataset.focus === name);
}

if (typeof document !== "undefined") {
  for (const element of document.querySelectorAll("[data-swap]")) new SwapRegion(/** @type {HTMLElement} */ (element));
}
