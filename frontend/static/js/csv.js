// What stands in a table of the page as a CSV file.

// The same rule as in profiler_server/store/sql.py.
const FORMULA = /^[=+@\t\r-]/;
const NUMBER = /^[+-]?([0-9]+([.][0-9]*)?|[.][0-9]+)([eE][+-]?[0-9]+)?$/;

/** Quote a cell; one that a spreadsheet would run as a formula is made text, numbers stay. @param {string} text */
export function quoteCell(text) {
  const safe = FORMULA.test(text) && !NUMBER.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

/**
 * Return rows of cells as CSV (RFC 4180).
 * @param {readonly (readonly string[])[]} rows
 */
export function writeCsv(rows) {
  return rows.map((row) => `${row.map(quoteCell).join(",")}\r\n`).join("");
}

/**
 * Return what a cell says in one line: its whole text where it is shortened, without its buttons and signs.
 * @param {Element} cell
 */
function readCell(cell) {
  const copy = /** @type {Element} */ (cell.cloneNode(true));
  for (const extra of copy.querySelectorAll(".find, .hidden-text, button")) extra.remove();
  const titled = [cell, ...cell.querySelectorAll("[title]")].find((node) => node.getAttribute("title") && node.textContent?.includes("…"));
  return (titled?.getAttribute("title") ?? copy.textContent ?? "").replace(/\s+/g, " ").trim();
}

/** @param {Element} table */
export function readTable(table) {
  return [...table.querySelectorAll("tr")].map((row) => [...row.querySelectorAll("th, td")].map(readCell));
}

/** @param {string} name of the file, without its ending @param {string} text */
export function saveCsv(name, text) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  link.download = `${name.replace(/[^\w.-]+/g, "-").slice(0, 80)}.csv`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

/** Listens for all buttons, also for those that a live run or a changed table brings later. */
export function installTableButtons() {
  document.addEventListener("click", (event) => {
    const button = event.target instanceof Element ? event.target.closest("[data-table-csv]") : null;
    if (!(button instanceof HTMLElement)) return;
    // The tools stand behind the table, or behind the box that scrolls it.
    const before = button.closest(".table-tools")?.previousElementSibling;
    const table = before?.matches("table") ? before : before?.querySelector("table");
    if (table) saveCsv(button.dataset.tableCsv ?? "table", writeCsv(readTable(table)));
  });
}
