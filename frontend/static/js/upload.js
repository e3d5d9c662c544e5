// The run list takes trace files: dropped anywhere on the page or chosen. They are sent, imported, and the run is opened.
import { cancelImport, describeState, followImport } from "./imports.js";

/**
 * @param {readonly {name: string, size: number}[]} files
 * @param {{limit: number, names: string, suffixes: string}} taken bytes that the server takes in all; what names of traces
 *   end like, as a regular expression and in words
 * @returns {string} why they cannot be sent, empty if they can
 */
export function refuse(files, { limit, names, suffixes }) {
  if (files.length === 0) return "No file was dropped. A folder cannot be: choose the files in it.";
  const isTrace = new RegExp(names, "i");
  const odd = files.find(({ name }) => !isTrace.test(name));
  if (odd) return `${odd.name} is not a trace: its name must end in ${suffixes}.`;
  const size = files.reduce((sum, file) => sum + file.size, 0);
  if (size > limit) return `${megabytes(size)} are more than this server takes (${megabytes(limit)}).`;
  return "";
}

/** @param {number} bytes */
function megabytes(bytes) {
  return `${Math.ceil(bytes / 2 ** 20).toLocaleString("en")} MiB`;
}

/** The drop zone of the page. */
class Zone {
  /** @param {HTMLElement} element */
  constructor(element) {
    this.element = element;
    this.progress = /** @type {HTMLElement} */ (element.querySelector(".drop-progress"));
    this.bar = /** @type {HTMLProgressElement} */ (element.querySelector("progress"));
    this.status = /** @type {HTMLElement} */ (element.querySelector("[role=status]"));
    this.error = /** @type {HTMLElement} */ (element.querySelector(".drop-error"));
    this.busy = false;
    /** What ends what is under way. */
    this.cancel = () => {};
    element.querySelector("[data-cancel]")?.addEventListener("click", () => this.cancel());
  }

  /** @param {FileList | null | undefined} list */
  take(list) {
    const files = [...(list ?? [])];
    const { limit, names = "", suffixes = "" } = this.element.dataset;
    const taken = { limit: Number(limit), names, suffixes };
    const reason = this.busy ? "One upload at a time: wait for the one before." : refuse(files, taken);
    if (reason) this.fail(reason, this.busy);
    else this.send(files);
  }

  /** @param {File[]} files */
  send(files) {
    this.busy = true;
    this.error.hidden = true;
    this.show(0, "Sending");
    const body = new FormData();
    for (const file of files) body.append("file", file, file.name);
    // fetch() cannot tell how much of a body has gone.
    const request = new XMLHttpRequest();
    request.open("POST", this.element.dataset.address ?? "");
    request.responseType = "json";
    request.upload.addEventListener("progress", (event) => this.show(0.5 * (event.loaded / event.total), "Sending"));
    request.addEventListener("load", () => {
      if (request.status === 202) this.follow(request.response);
      else this.fail(request.response?.error?.message ?? `The server answered ${request.status}.`);
    });
    request.addEventListener("error", () => this.fail("The upload broke off: the server cannot be reached, or refused it."));
    request.addEventListener("abort", () => this.fail("Cancelled."));
    this.cancel = () => request.abort();
    request.send(body);
  }

  /** @param {import("./imports.js").ImportStatus} sent */
  async follow(sent) {
    this.show(0.5, describeState(sent));
    this.cancel = () => void cancelImport(this.element.dataset.address ?? "", sent.id);
    try {
      const show = (/** @type {import("./imports.js").ImportStatus} */ job) => this.show(0.5 + 0.5 * job.progress_frac, describeState(job));
      location.assign(await followImport(this.element.dataset.address ?? "", sent.id, show));
    } catch (error) {
      this.fail(error instanceof Error ? error.message : String(error));
    }
  }

  /** @param {number} share @param {string} text */
  show(share, text) {
    this.progress.hidden = false;
    this.bar.value = share;
    this.status.textContent = `${text}, ${Math.round(100 * share)} %`;
  }

  /** @param {string} reason @param {boolean} [goesOn] whether something else is still under way */
  fail(reason, goesOn = false) {
    this.error.hidden = false;
    this.error.textContent = reason;
    if (goesOn) return;
    this.busy = false;
    this.progress.hidden = true;
  }
}

/** @param {DragEvent} event */
function hasFiles(event) {
  return event.dataTransfer?.types.includes("Files") ?? false;
}

function install() {
  const element = document.getElementById("drop");
  if (!element) return;
  const zone = new Zone(element);
  const input = /** @type {HTMLInputElement} */ (element.querySelector("input"));
  input.addEventListener("change", () => {
    zone.take(input.files);
    input.value = "";
  });
  addEventListener("dragover", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    element.classList.add("over");
  });
  addEventListener("dragleave", (event) => {
    if (!event.relatedTarget) element.classList.remove("over");
  });
  addEventListener("drop", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    element.classList.remove("over");
    zone.take(event.dataTransfer?.files);
  });
}

if (typeof document !== "undefined") install();
