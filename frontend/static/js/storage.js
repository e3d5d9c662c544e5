// What a person chose, kept in this browser. Storage may be forbidden: then a choice lasts as long as the page.

const PREFIX = "stepscope.";

/** @type {Map<string, string>} */
const unstored = new Map();

/**
 * @param {string} name
 * @param {string} fallback
 * @returns {string}
 */
export function readChoice(name, fallback) {
  try {
    return localStorage.getItem(PREFIX + name) ?? unstored.get(name) ?? fallback;
  } catch {
    return unstored.get(name) ?? fallback;
  }
}

/**
 * @param {string} name
 * @param {string | null} value null forgets the choice
 */
export function writeChoice(name, value) {
  if (value === null) unstored.delete(name);
  else unstored.set(name, value);
  try {
    if (value === null) localStorage.removeItem(PREFIX + name);
    else localStorage.setItem(PREFIX + name, value);
  } catch {
    // Kept in the map above.
  }
}
