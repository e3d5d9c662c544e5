/**
 * Unpacks the metadata of a rank's timeline; profiler_server/timeline/view.py packs it.
 *
 * @typedef {import("./layout.js").Meta} Meta
 * @typedef {Omit<Meta, "names" | "nameCategories"> & {names: (string | [string, number, number])[],
 *   nameCategories: [number, number][]}} PackedMeta `names` has runs such as "Step 7", "Step 8" as prefix, first number
 *   and how many; `nameCategories` has each category with how many names in a row are of it
 */

/** @param {PackedMeta} packed @returns {Meta} */
export function unpackMeta(packed) {
  /** @type {string[]} */
  const names = [];
  for (const entry of packed.names) {
    if (typeof entry === "string") names.push(entry);
    else for (let i = 0; i < entry[2]; i++) names.push(entry[0] + (entry[1] + i));
  }
  /** @type {number[]} */
  const nameCategories = [];
  for (const [category, count] of packed.nameCategories) for (let i = 0; i < count; i++) nameCategories.push(category);
  return { ...packed, names, nameCategories };
}
