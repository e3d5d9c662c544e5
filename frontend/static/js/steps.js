/** Opens the step whose point is clicked in a chart of steps; a point that stands for several opens the middle one. */

/**
 * Return the address of a step's page with the rest of the query kept.
 * @param {string} address of the Step trace page @param {string} query of the page at hand @param {number} x
 */
export function addressOfStep(address, query, x) {
  const target = new URL(address);
  const kept = new URLSearchParams(query);
  for (const name of ["rank", "steps"]) {
    const value = kept.get(name);
    if (value !== null) target.searchParams.set(name, value);
  }
  target.searchParams.set("step", String(Math.round(x)));
  return target.href;
}

if (typeof document !== "undefined") {
  document.addEventListener("stepscope:point", (event) => {
    const box = /** @type {Element} */ (event.target).closest("[data-open-steps]");
    const x = /** @type {CustomEvent} */ (event).detail.x;
    if (!(box instanceof HTMLElement) || typeof x !== "number") return;
    location.assign(addressOfStep(new URL(box.dataset.openSteps ?? "", location.href).href, location.search, x));
  });
}
