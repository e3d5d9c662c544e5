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
  return job.ahead ? `Waiting behind ${job.ahead} ${job.ahead === 1 ? "import" : "imports"}` : "Waiting";
}

/**
 * @param {string} address of all imports
 * @param {string} id
 */
export async function cancelImport(address, id) {
  await fetch(`${address}/${id}`, { method: "DELETE" });
}
