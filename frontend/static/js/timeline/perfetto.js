// Hands out the trace as a file, or to Perfetto's own page: the one place that needs the network, and only when asked to.

const PERFETTO = "https://ui.perfetto.dev";
const PING_MS = 50;
const GIVE_UP_MS = 30000;

/**
 * Open Perfetto inside of the click, then hand over the trace when it answers.
 * @param {string} address of the trace @param {string} title @param {(text: string) => void} say
 */
export async function openInPerfetto(address, title, say) {
  const opened = window.open(PERFETTO, "_blank");
  if (!opened) return say("The browser blocked the new window. Download the JSON and open it in any Perfetto instead.");
  say("Preparing the trace for Perfetto …");
  try {
    const [{ buffer, leftOut }] = await Promise.all([fetchTrace(address), waitForAnswer(opened)]);
    opened.postMessage({ perfetto: { buffer, title, fileName: `${title}.json.gz`, localOnly: true } }, PERFETTO, [buffer]);
    say(`Handed over to Perfetto. Left out: ${leftOut}.`);
  } catch (error) {
    say(`${error instanceof Error ? error.message : error} Download the JSON and open it in any Perfetto, offline too.`);
  }
}

/**
 * Save the trace as a file, and say what was left out of it.
 * @param {string} address of the trace @param {string} title @param {(text: string) => void} say
 */
export async function download(address, title, say) {
  say("Preparing the trace …");
  try {
    const trace = await fetchTrace(address);
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([trace.buffer], { type: "application/gzip" }));
    link.download = trace.name || `${title}.json.gz`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), GIVE_UP_MS);
    say(`Saved as ${link.download}. Left out: ${trace.leftOut}.`);
  } catch (error) {
    say(error instanceof Error ? error.message : String(error));
  }
}

/** @param {string} address @returns {Promise<{buffer: ArrayBuffer, name: string, leftOut: string}>} */
async function fetchTrace(address) {
  const answer = await fetch(address);
  if (!answer.ok) throw new Error((await answer.json()).error?.message ?? "The trace could not be made.");
  const name = /filename="([^"]+)"/.exec(answer.headers.get("content-disposition") ?? "")?.[1] ?? "";
  return { buffer: await answer.arrayBuffer(), name, leftOut: answer.headers.get("x-left-out") ?? "nothing" };
}

/** @param {Window} opened @returns {Promise<void>} */
function waitForAnswer(opened) {
  return new Promise((resolve, reject) => {
    const stop = () => {
      clearInterval(pinging);
      clearTimeout(patience);
      removeEventListener("message", hear);
    };
    const hear = (/** @type {MessageEvent} */ event) => {
      if (event.source !== opened || event.origin !== PERFETTO || event.data !== "PONG") return;
      stop();
      resolve();
    };
    const pinging = setInterval(() => opened.postMessage("PING", PERFETTO), PING_MS);
    const patience = setTimeout(() => {
      stop();
      reject(new Error("Perfetto did not answer; this machine may have no network."));
    }, GIVE_UP_MS);
    addEventListener("message", hear);
  });
}
