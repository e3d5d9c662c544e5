// Copy buttons, and the line at the bottom that says what was done.

/** @type {ReturnType<typeof setTimeout> | undefined} */
let clearing;

/** @param {string} text */
export function say(text) {
  const toast = document.getElementById("toast");
  if (!toast) return;
  toast.textContent = text;
  clearTimeout(clearing);
  clearing = setTimeout(() => (toast.textContent = ""), 2500);
}

/**
 * Copy a text, also where the clipboard API is missing because the page did not come over HTTPS or loopback.
 * @param {string} text
 * @returns {Promise<boolean>}
 */
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = document.createElement("textarea");
    area.value = text;
    area.className = "hidden-text";
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}

export function installCopyButtons() {
  document.addEventListener("click", async (event) => {
    if (!(event.target instanceof Element)) return;
    const button = event.target.closest("[data-copy], [data-copy-address]");
    if (!(button instanceof HTMLElement)) return;
    const address = button.dataset.copy === undefined;
    const done = await copyText(address ? location.href : (button.dataset.copy ?? ""));
    say(done ? (address ? "The address of this view is copied" : "Copied") : "Copying is not allowed here");
  });
}
