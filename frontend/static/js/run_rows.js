// The list of runs while one of them records, or is still to be read: its row follows, cell by cell, until it has all.
// What one ticked, focused or scrolled to stays as it is.

const POLL_MS = 3000;
const SLOWEST_MS = 30000;

/** @param {ParentNode} page @returns {Map<string, HTMLTableRowElement>} the rows by the id of their run */
function listRows(page) {
  const boxes = /** @type {NodeListOf<HTMLInputElement>} */ (page.querySelectorAll("#compare input[name=run]"));
  return new Map([...boxes].map((box) => [box.value, /** @type {HTMLTableRowElement} */ (box.closest("tr"))]));
}

/** @returns {[string, HTMLTableRowElement][]} */
function listUnfinished() {
  return [...listRows(document)].filter(([, row]) => row.dataset.reading !== undefined || row.querySelector(".badge-recording"));
}

/** @param {string} address @returns {Promise<Document>} */
async function fetchList(address) {
  const answer = await fetch(address, { headers: { Accept: "text/html" } });
  if (!answer.ok) throw new Error(`status ${answer.status}`);
  return new DOMParser().parseFromString(await answer.text(), "text/html");
}

/** @param {HTMLTableRowElement} row @param {HTMLTableRowElement} fresh */
function renewRow(row, fresh) {
  for (const [at, cell] of [...row.cells].entries()) {
    const next = fresh.cells[at];
    if (!next || cell.matches(".pick") || cell.contains(document.activeElement) || cell.isEqualNode(next)) continue;
    // A verdict stays until there is another.
    if (next.dataset.verdict) cell.dataset.verdict = next.dataset.verdict;
    else cell.replaceWith(document.importNode(next, true));
  }
  if (fresh.dataset.reading === undefined) delete row.dataset.reading;
}

/**
 * Say how many runs are still to be read. When none is, the order of the list is known: it is shown from the start.
 * @param {Document} fresh
 */
function renewCount(fresh) {
  const [count, next] = [document, fresh].map((page) => page.querySelector("[data-unread]"));
  if (count && next) count.textContent = next.textContent;
  else if (count && !document.querySelector("#compare input[name=run]:checked")) location.reload();
  else count?.remove();
}

async function renewUnfinished() {
  const page = await fetchList(location.href);
  const shown = listRows(page);
  for (const [id, row] of listUnfinished()) {
    // A run that has ended, or was read, may belong to another page of the list by now.
    const search = `${location.pathname}?${new URLSearchParams({ q: id })}`;
    const fresh = shown.get(id) ?? listRows(await fetchList(search)).get(id);
    if (fresh) renewRow(row, fresh);
  }
  renewCount(page);
}

/** @param {() => void} changed called after the rows were renewed */
export function followRows(changed) {
  let wait = POLL_MS;
  const poll = async () => {
    if (!listUnfinished().length && !document.querySelector("[data-unread]")) return;
    try {
      await renewUnfinished();
      wait = POLL_MS;
      changed();
    } catch {
      wait = Math.min(2 * wait, SLOWEST_MS);
    }
    setTimeout(poll, document.hidden ? SLOWEST_MS : wait);
  };
  setTimeout(poll, POLL_MS);
}
