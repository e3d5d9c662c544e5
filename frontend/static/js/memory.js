/** Opens the moment of memory that is clicked in the chart: the server lists what was alive then. */

/**
 * Return the address of the same page at a moment, with what is alive in view.
 * @param {string} address @param {string} origin ns since the run's epoch, of the chart's zero @param {number} x ms
 */
export function addressOfMoment(address, origin, x) {
  const target = new URL(address);
  // Times may exceed what a double holds exactly, so the sum is one of integers.
  target.searchParams.set("at_ns", String(BigInt(origin) + BigInt(Math.round(x * 1e6))));
  target.hash = "moment";
  return target.href;
}

if (typeof document !== "undefined") {
  document.addEventListener("stepscope:point", (event) => {
    const box = /** @type {Element} */ (event.target).closest("[data-moments]");
    const x = /** @type {CustomEvent} */ (event).detail.x;
    if (!(box instanceof HTMLElement) || typeof x !== "number") return;
    location.assign(addressOfMoment(location.href, box.dataset.originNs ?? "0", x));
  });
}
