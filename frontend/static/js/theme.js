// The theme switch: system, light, dark, in turn. boot.js applies what is stored here.
import { readChoice, writeChoice } from "./storage.js";

const ORDER = ["system", "light", "dark"];
const LABELS = { system: "Auto", light: "Light", dark: "Dark" };

/**
 * @param {string} choice
 * @returns {string} the choice after it
 */
export function nextTheme(choice) {
  return ORDER[(ORDER.indexOf(choice) + 1) % ORDER.length];
}

export function installThemeSwitch() {
  const button = document.querySelector("[data-theme-switch]");
  if (!(button instanceof HTMLElement)) return;
  const label = () => {
    const choice = /** @type {keyof typeof LABELS} */ (readChoice("theme", "system"));
    const name = LABELS[choice] ?? LABELS.system;
    button.textContent = `◐ ${name}`;
    button.setAttribute("aria-label", `Theme: ${name}. Press to change.`);
    button.title = "Theme";
  };
  button.addEventListener("click", () => {
    const next = nextTheme(readChoice("theme", "system"));
    writeChoice("theme", next === "system" ? null : next);
    document.dispatchEvent(new CustomEvent("stepscope:theme-choice"));
    label();
  });
  label();
}
