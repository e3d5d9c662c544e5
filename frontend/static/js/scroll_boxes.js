// Boxes that hold more than they show: the keyboard can reach and scroll them, and they say that there is more to the right.

const BOXES = ".table-box, .scroll-x, .scroll-y, .table-scroll, .text-scroll, .module-scroll, .chart-table, .pipeline, .raw, .timeline-details";
const SLACK_PX = 2;

/** @param {HTMLElement} box @returns {string} */
function nameBox(box) {
  const title = box.closest("figure, section, main")?.querySelector("h1, h2, h3")?.textContent?.trim();
  const first = box.querySelector("caption, th")?.textContent?.trim();
  return [title, first].filter(Boolean).join(", ") || "More than is shown";
}

/** @param {HTMLElement} box */
function markBox(box) {
  const style = getComputedStyle(box);
  const wide = box.scrollWidth - box.clientWidth > SLACK_PX && style.overflowX !== "visible";
  const tall = box.scrollHeight - box.clientHeight > SLACK_PX && style.overflowY !== "visible";
  box.classList.toggle("more-right", wide && box.scrollLeft + box.clientWidth + SLACK_PX < box.scrollWidth);
  if (!(wide || tall)) {
    if (box.dataset.scrolls === undefined) return;
    for (const name of ["tabindex", "role", "aria-label", "data-scrolls"]) box.removeAttribute(name);
  } else if (!box.hasAttribute("tabindex")) {
    box.dataset.scrolls = "";
    box.tabIndex = 0;
    // A list keeps its role: it would lose its items.
    if (box.matches("ol, ul, pre")) return;
    box.setAttribute("role", "group");
    box.setAttribute("aria-label", nameBox(box));
  }
}

export function installScrollBoxes() {
  const sizes = new ResizeObserver((entries) => {
    for (const entry of entries) {
      const box = entry.target.closest(BOXES);
      if (box instanceof HTMLElement) markBox(box);
    }
  });
  /** @type {WeakSet<Element>} */
  const seen = new WeakSet();
  const watch = () => {
    for (const box of document.querySelectorAll(BOXES)) {
      if (seen.has(box)) continue;
      seen.add(box);
      sizes.observe(box);
      if (box.firstElementChild) sizes.observe(box.firstElementChild);
      box.addEventListener("scroll", () => box instanceof HTMLElement && markBox(box), { passive: true });
    }
  };
  watch();
  for (const event of ["stepscope:content", "toggle"]) document.addEventListener(event, watch, true);
}
