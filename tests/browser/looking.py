"""What a careful person would see on a page, as scripts that answer with a list of faults."""

from __future__ import annotations

from playwright.sync_api import Page

from tests.support.waiting import wait_for

NONSENSE = r"\b(undefined|NaN|None|null|Infinity|nan|inf|\[object Object\])\b"

UNNAMED = """() => {
  const named = (node) => node.ariaLabel || node.title || node.innerText?.trim() || node.textContent?.trim()
    || node.getAttribute("aria-labelledby") || node.labels?.length || node.alt;
  const shown = [...document.querySelectorAll("a[href], button, input:not([type=hidden]), select, textarea, summary, [role=img], canvas")]
    .filter((node) => node.checkVisibility() && !node.closest("[aria-hidden=true]"));
  return shown.filter((node) => !named(node)).map((node) => node.outerHTML.slice(0, 160));
}"""
"""Controls and pictures without an accessible name."""

FAINT = """() => {
  const parse = (text) => (text.match(/[\\d.]+/g) ?? []).map(Number);
  const light = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const ground = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const color = parse(getComputedStyle(at).backgroundColor);
      if (color.length === 3 || color[3] > 0.99) return color;
    }
    return parse(getComputedStyle(document.documentElement).colorScheme === "dark" ? "13 17 23" : "255 255 255");
  };
  const faults = new Map();
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let text = texts.nextNode(); text; text = texts.nextNode()) {
    const node = text.parentElement;
    // Pictures have labels on their own grounds; what is disabled needs no contrast.
    if (!text.data.trim() || !node.checkVisibility({ opacityProperty: true }) || node.closest("svg, canvas, script, [aria-hidden=true], [aria-disabled], :disabled")) continue;
    const style = getComputedStyle(node);
    const [over, under] = [light(parse(style.color)), light(ground(node))].sort((a, b) => b - a);
    const ratio = (over + 0.05) / (under + 0.05);
    const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && style.fontWeight >= 700);
    if (ratio < (large ? 3 : 4.5)) faults.set(`${style.color} on ${ground(node)}`, `${ratio.toFixed(2)}: ${text.data.trim().slice(0, 60)}`);
  }
  return [...faults].map(([colors, text]) => `${text} (${colors})`);
}"""
"""Text with less contrast than WCAG's AA asks for."""

WIDE = """() => document.documentElement.scrollWidth > innerWidth ? [`${document.documentElement.scrollWidth} px wide`] : []"""

CUT = """() => [...document.querySelectorAll(".stat-value, .stat-note, .figures dd, .part-time, h1, h2, h3, .button, .tab")]
  .filter((node) => node.checkVisibility() && !node.closest(".chart figcaption, .card .chart"))
  .filter((node) => node.getBoundingClientRect().right > node.closest(".stat, .panel, .card, main, body").getBoundingClientRect().right + 1
    || node.scrollWidth > node.closest(".stat, .panel, .card, main, body").clientWidth + 1)
  .map((node) => node.outerHTML.slice(0, 120))"""
"""Figures and titles that stick out of their box."""

SHIFTED = """() => new Promise((resolve) => {
  const found = [];
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) {
      if (entry.hadRecentInput || entry.value < 0.001) continue;
      found.push([entry.value, ...entry.sources.map((source) => source.node?.outerHTML?.slice(0, 80) ?? "gone")]);
    }
  }).observe({ type: "layout-shift", buffered: true });
  setTimeout(() => resolve(found), 50);
})"""
"""Every shift of the layout since the page was opened: how much, and what moved."""


def find_faults(page: Page) -> list[str]:
    """Return what is wrong with the page at hand, empty for nothing."""
    return [f"{what}: {fault}" for what, script in _LOOKS.items() for fault in page.evaluate(script)]


_LOOKS = {"no name": UNNAMED, "faint": FAINT, "too wide": WIDE, "sticks out": CUT}


def measure_shift(page: Page) -> tuple[float, list[list[object]]]:
    """Return the layout shift so far, and what moved."""
    shifts = page.evaluate(SHIFTED)
    return sum(float(entry[0]) for entry in shifts), shifts


def wait_until(page: Page, expression: str) -> None:
    """Poll, because the content policy forbids what Playwright's own waiting does."""
    wait_for(lambda: page.evaluate(expression), lambda: f"never true: {expression}")


def wait_for_text(page: Page, wanted: str) -> None:
    """Wait until the page's main part holds the text: some of it is drawn by scripts."""
    wait_for(lambda: wanted in page.inner_text("main"), lambda: f"{wanted!r} is not in {page.inner_text('main')!r}")


def wait_for_charts(page: Page) -> None:
    """Wait until the charts in view are drawn."""
    drawn = """() => [...document.querySelectorAll("figure.chart")].filter((chart) => {
      const box = chart.getBoundingClientRect();
      return box.top < innerHeight && box.bottom > 0 && box.height > 0;
    }).every((chart) => chart.dataset.state === "drawn")"""
    wait_until(page, drawn)


def draw_all(page: Page) -> None:
    """Scroll every chart into view and wait until all are drawn."""
    for chart in page.query_selector_all("figure.chart"):
        chart.scroll_into_view_if_needed()
    wait_until(page, "[...document.querySelectorAll('figure.chart')].every(f => f.dataset.state === 'drawn')")
