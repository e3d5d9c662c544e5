// How an import on the server goes, asked for until it ends.

const POLL_MS = 400;

/** @typedef {{id: string, state: string, progress_frac: number, error: string | null, href: string | null, ahead?: number}} ImportStatus */

/**
 * @param {string} address of all imports
 * @param {string} id
 * @param {(job: ImportStatus) => void} show
 * @returns {Promise<string>} the address of the run; rejects with what went wrong
 */
export async function followImport(address, id, show) {
  for (;;) {
    const answer = await fetch(`${address}/${id}`);
    if (!answer.ok) throw new Error(`The server answered ${answer.status}.`);
    const job = /** @type {ImportStatus} */ (await answer.json());
    if (job.state === "done" && job.href) return job.href;
    if (job.state === "cancelled") throw new Error("Cancelled.");
    if (job.state === "done" || job.state === "failed") throw new Error(job.error ?? "The import failed.");
    show(job);
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
}

/** @param {ImportStatus} job */
export function describeState(job) {
  if (job.state !== "waiting") return "Importing";
  return job.ahead ? `${writePlace(job.ahead + 1)} in the queue` : "Waiting";
}

/** @param {number} place @returns {string} 2nd, 3rd, 11th */
function writePlace(place) {
  const teen = place % 100 > 10 && place % 100 < 14;
  return `${place}${(!teen && ["", "st", "nd", "rd"][place % 10]) || "th"}`;
}

/**
 * @param {string} address of all imports
 * @param {string} id
 */
export async function cancelImport(address, id) {
  await fetch(`${address}/${id}`, { method: "DELETE" });
}
