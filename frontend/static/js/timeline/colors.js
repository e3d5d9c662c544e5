/**
 * Colours of slices. A colour is a category, the same on every page; its lightness tells names apart.
 *
 * @typedef {{ground: number, text: string, ink: string, line: string, muted: string, accent: string, raised: string,
 *   classes: Record<string, [number, number, number]>, dark: boolean}} Palette
 */

const CLASSES = ["compute", "backward", "communication", "overlap", "copy", "data", "host", "optimizer", "idle", "worse"];

/** @type {Record<string, string>} */
const OF_CATEGORY = {
  kernel: "compute",
  memset: "compute",
  memcpy: "copy",
  communication: "communication",
  overlap: "overlap",
  computation: "compute",
  "exposed communication": "communication",
  "exposed copy": "copy",
  stage: "data",
  wait: "idle",
  overhead: "idle",
  other: "idle",
  runtime: "host",
  step: "host",
  python: "host",
  module: "host",
};

const WHITE = [255, 255, 255];

/**
 * @param {string} category @param {string} name @param {Record<string, string>} phaseColors class of each phase, by label
 * @returns {string} one of the classes of tokens.css
 */
export function classOf(category, name, phaseColors) {
  if (category === "phase") return phaseColors[name] ?? "host";
  if (category in OF_CATEGORY) return OF_CATEGORY[category];
  if (/DataLoader/.test(name)) return "data";
  if (/^Optimizer\.|_foreach_|_fused_adam|zero_grad/.test(name)) return "optimizer";
  if (/^(nccl|gloo|c10d)/i.test(name)) return "communication";
  if (/[Bb]ackward|^autograd::/.test(name)) return "backward";
  return category === "operator" ? "compute" : "host";
}

/** @param {string} text @returns {number} 0 to 1, spread evenly */
export function spread(text) {
  let hash = 2166136261;
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 16777619);
  return ((hash >>> 8) & 0xffff) / 0xffff;
}

/** @param {string} hex `#rrggbb` @returns {[number, number, number]} */
export function parseHex(hex) {
  const value = parseInt(hex.trim().slice(1), 16);
  return Number.isNaN(value) ? [128, 128, 128] : [value >> 16, (value >> 8) & 255, value & 255];
}

/** @param {number[]} rgb @returns {number} a pixel as canvas image data has it on a little-endian machine */
export function pixel(rgb) {
  return ((255 << 24) | (rgb[2] << 16) | (rgb[1] << 8) | rgb[0]) >>> 0;
}

/** @param {number[]} a @param {number[]} b @param {number} share of b @returns {number[]} */
export function blend(a, b, share) {
  return a.map((value, i) => Math.round(value + (b[i] - value) * share));
}

/** @param {Element} element @returns {Palette} what tokens.css says for the theme */
export function readPalette(element) {
  const style = getComputedStyle(element);
  /** @param {string} name */
  const token = (name) => style.getPropertyValue(`--${name}`).trim();
  return {
    ground: pixel(parseHex(token("ground"))),
    raised: token("ground-2"),
    text: token("text"),
    ink: token("ground"),
    line: token("line"),
    muted: token("text-2"),
    accent: token("accent"),
    classes: Object.fromEntries(CLASSES.map((name) => [name, parseHex(token(name))])),
    dark: document.documentElement.dataset.theme === "dark",
  };
}

/** Where black and white text stand out equally well: 4.6 to 1, by WCAG's formula. */
const EVEN_LUMINANCE = 0.179;

/** How much of the ground lies over what is not on the critical path. */
export const VEIL = 0.72;
const READABLE = 4.5;

/** @param {number[]} rgb @returns {number} relative luminance, 0 to 1, as WCAG defines it */
export function luminance(rgb) {
  const [r, g, b] = rgb.map((value) => (value <= 10 ? value / 3294.6 : ((value / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

/** @param {number[]} a @param {number[]} b @returns {number} contrast as WCAG defines it, 1 to 21 */
export function contrast(a, b) {
  const [low, high] = [luminance(a), luminance(b)].sort((one, other) => one - other);
  return (high + 0.05) / (low + 0.05);
}

/**
 * @param {number[]} rgb of the ground @param {number[]} [wish] the colour that is taken if it can be read
 * @returns {string} a colour of text that can be read on it: 4.5 to 1 or more
 */
export function inkOn(rgb, wish) {
  if (wish && contrast(rgb, wish) >= READABLE) return `rgb(${wish.join(" ")})`;
  return luminance(rgb) > EVEN_LUMINANCE ? "#000000" : "#ffffff";
}

/**
 * Return the colour of every name: its class, with a little of the ground mixed in by a hash of the name.
 * @param {string[]} names @param {string[]} categories of each name @param {Palette} palette
 * @param {Record<string, string>} phaseColors class of each phase, by label
 * @returns {{rgb: number[][], idle: Uint8Array}} `idle` says which stand for waiting
 */
export function colorNames(names, categories, palette, phaseColors) {
  const idle = new Uint8Array(names.length);
  const rgb = names.map((name, i) => {
    const kind = classOf(categories[i], name, phaseColors);
    const base = palette.classes[kind];
    const steady = categories[i] === "phase" || categories[i] === "wait" || categories[i] === "overlap";
    const color = blend(base, WHITE, (steady ? 0 : 0.42 * spread(name)) + (kind === "idle" && !palette.dark ? 0.45 : 0));
    idle[i] = kind === "idle" ? 1 : 0;
    return color;
  });
  return { rgb, idle };
}

/** Least share of its colour that a merged run keeps: a short slice must be seen, a short wait must not look like a long one. */
const LEAST = 0.3;
const LEAST_IDLE = 0.06;

/**
 * Give every slice of a tile its pixel colour; a merged run fades to the ground as it gets emptier.
 * @param {import("./tile.js").Tile} tile @param {{rgb: number[][], idle: Uint8Array}} colors of each name
 * @param {number} ground pixel
 */
export function colorTile(tile, { rgb, idle }, ground) {
  const back = [ground & 255, (ground >> 8) & 255, (ground >> 16) & 255];
  const solid = rgb.map(pixel);
  const color = new Uint32Array(tile.name.length);
  for (let i = 0; i < color.length; i++) {
    const fill = tile.fill[i];
    const name = tile.name[i];
    const least = idle[name] ? LEAST_IDLE : LEAST;
    color[i] = fill > 250 || tile.count[i] === 1 ? solid[name] : pixel(blend(back, rgb[name], least + ((1 - least) * fill) / 255));
  }
  tile.color = color;
  tile.idle = idle;
}
