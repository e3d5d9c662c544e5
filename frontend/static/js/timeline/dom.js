// Small makers of elements. Text always goes in as text.

/**
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag @param {Record<string, string>} [attributes] @param {...(Node | string)} children
 * @returns {HTMLElementTagNameMap[K]}
 */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/**
 * @template {HTMLElement} T
 * @param {string} id @param {new () => T} Kind @returns {T}
 */
export function byId(id, Kind) {
  const found = document.getElementById(id);
  if (!(found instanceof Kind)) throw new Error(`The page lacks #${id}.`);
  return found;
}

/**
 * @param {string} label @param {() => void} act @param {string} [title] @returns {HTMLButtonElement}
 */
export function button(label, act, title = "") {
  const made = make("button", { type: "button", class: "link-button" }, label);
  if (title) made.title = title;
  made.addEventListener("click", act);
  return made;
}
