// Paper is white and cannot be scrolled: a page is printed in light colours, with every chart drawn and all advice open.

/** @param {Document} page */
export function preparePaper(page) {
  const root = page.documentElement;
  const theme = root.dataset.theme ?? "light";
  const closed = [...page.querySelectorAll("details.abstained, details.device-more, .advice > details")].filter((one) => !one.hasAttribute("open"));
  root.dataset.theme = "light";
  for (const one of closed) one.setAttribute("open", "");
  page.dispatchEvent(new CustomEvent("stepscope:paper"));
  return () => {
    root.dataset.theme = theme;
    for (const one of closed) one.removeAttribute("open");
    page.dispatchEvent(new CustomEvent("stepscope:theme"));
  };
}

export function installPaper() {
  /** @type {(() => void) | null} */
  let restore = null;
  addEventListener("beforeprint", () => (restore ??= preparePaper(document)));
  addEventListener("afterprint", () => {
    restore?.();
    restore = null;
  });
}
