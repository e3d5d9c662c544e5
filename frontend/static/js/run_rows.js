// The list of runs while one of them records: its row follows, cell by cell, and is left alone once the run has ended.
// What one ticked, focused or scrolled to stays as it is.

const POLL_MS = 3000;
const SLOWEST_MS = 30000;

/** @param {ParentNode} page @returns {Map<string, HTMLTableRowElement>} the rows by the id of their run */
function listRows(page) {
  const boxes = /** @type {NodeListOf<HTMLInputElement>} */ (page.querySelectorAll("#compare input[name=run]"));
  return new Map([...boxes].map((box) => [box.value, /** @type {HTMLTableRowElement} */ (box.closest("tr"))]));
}

/** @returns {[string, HTMLTableRowElement][]} */
function listRecording() {
  return [...listRows(document)].filter(([, row]) => row.querySelector(".badge-recording"));
}

/** @param {string} address @returns {Promise<Map<string, HTMLTableRowElement>>} */
async function fetchRows(address) {
  const answer = await fetch(address, { headers: { Accept: "text/html" } });
  if (!answer.ok) throw new Error(`status ${answer.status}`);
  return listRows(new DOMParser().parseFromString(await answer.text(), "text/html"));
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
}

async function renewRecording() {
  const shown = await fetchRows(location.href);
  for (const [id, row] of listRecording()) {
    // A run that has ended may belong to another page of the list by now.
    const fresh = shown.get(id) ?? (await fetchRows(`${location.pathname}?${new URLSearchParams({ q: id })}`)).get(id);
    if (fresh) renewRow(row, fresh);
  }
}

/** @param {() => void} changed called after the rows were renewed */
export function followRows(changed) {
  let wait = POLL_MS;
  const poll = async () => {
    if (!listRecording().length) return;
    try {
      await renewRecording();
      wait = POLL_MS;
      changed();
    } catch {
      wait = Math.min(2 * wait, SLOWEST_MS);
    }
    setTimeout(poll, document.hidden ? SLOWEST_MS : wait);
  };
  setTimeout(poll, POLL_MS);
}
