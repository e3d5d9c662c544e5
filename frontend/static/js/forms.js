// Pickers that act on change, and search fields that act while one types.

const WAIT_MS = 350;

export function installForms() {
  document.addEventListener("change", (event) => {
    if (event.target instanceof HTMLSelectElement && event.target.matches("[data-submit]")) event.target.form?.requestSubmit();
  });
  document.addEventListener("submit", (event) => {
    // Empty fields would only lengthen the address that one shares.
    if (!(event.target instanceof HTMLFormElement) || event.target.method !== "get") return;
    for (const field of event.target.elements) {
      if (field instanceof HTMLInputElement && field.value === "") field.disabled = true;
    }
  });
  addEventListener("pageshow", () => {
    for (const field of document.querySelectorAll("form[method=get] input:disabled[name]")) field.removeAttribute("disabled");
  });
}

/**
 * Call back when typing pauses.
 * @param {HTMLInputElement} field
 * @param {(text: string) => void} callback
 */
export function onPause(field, callback) {
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let waiting;
  field.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => callback(field.value), WAIT_MS);
  });
}
