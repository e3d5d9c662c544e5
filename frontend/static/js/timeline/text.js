// Text of figures and names, as profiler_server/format.py makes it.

const UNITS = /** @type {[number, string][]} */ ([[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]]);
const BYTES = /** @type {[number, string][]} */ ([[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [1, "B"]]);

/** @param {number} value @returns {string} three significant digits */
function significant(value) {
  const digits = value === 0 ? 0 : Math.max(0, Math.min(2, 2 - Math.floor(Math.log10(Math.abs(value)))));
  return value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

/** @param {number} ns @returns {string} `178 ms` */
export function duration(ns) {
  if (ns === 0) return "0 ms";
  const [size, unit] = UNITS.find(([size]) => Math.abs(ns) >= 0.9995 * size) ?? UNITS[3];
  return `${significant(ns / size)} ${unit}`;
}

/** @param {number} ns a moment @param {number} precision the shortest time that must show @returns {string} */
export function moment(ns, precision) {
  if (ns === 0) return "0 ms";
  const [size, unit] = UNITS.find(([size]) => Math.abs(ns) >= size && precision >= size / 1e6) ?? UNITS[3];
  const digits = Math.max(0, Math.min(9, Math.ceil(Math.log10(size / Math.max(precision, 1)))));
  return `${(ns / size).toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits })} ${unit}`;
}

/** @param {number} value @param {string} unit of a counter @returns {string} */
export function amount(value, unit) {
  if (unit !== "bytes") return `${Number.isInteger(value) ? count(value) : significant(value)}${unit ? ` ${unit}` : ""}`;
  const [size, name] = BYTES.find(([size]) => Math.abs(value) >= size) ?? BYTES[4];
  return `${significant(value / size)} ${name}`;
}

/**
 * Return what a column of a row is called and holds, for a reader: `data_wait_ns` 37992886 is `data wait`, `38.0 ms`.
 * @param {string} key @param {unknown} value @returns {[string, unknown]}
 */
export function column(key, value) {
  const unit = /_(ns|bytes)$/.exec(key);
  if (!unit || typeof value !== "number") return [key, value];
  return [key.slice(0, unit.index).replaceAll("_", " "), unit[1] === "ns" ? duration(value) : amount(value, "bytes")];
}

/** @param {number} value @returns {string} `12,480` */
export function count(value) {
  return Math.round(value).toLocaleString("en");
}

/**
 * Shorten a name in the middle, where kernel names differ least.
 * @param {string} name @param {number} limit in characters @returns {string}
 */
export function shorten(name, limit) {
  if (name.length <= limit) return name;
  if (limit < 4) return name.slice(0, Math.max(limit - 1, 0)) + "…";
  const head = Math.floor(((limit - 1) * 2) / 3);
  return `${name.slice(0, head)}…${name.slice(name.length - (limit - 1 - head))}`;
}

/**
 * Return round moments for a ruler.
 * @param {number} begin ns @param {number} end ns @param {number} most how many fit
 * @returns {{step: number, ticks: number[]}}
 */
export function rulerTicks(begin, end, most) {
  const rough = (end - begin) / Math.max(most, 1);
  const power = 10 ** Math.floor(Math.log10(Math.max(rough, 1)));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough) ?? 10 * power;
  const ticks = [];
  for (let at = Math.ceil(begin / step) * step; at <= end; at += step) ticks.push(at);
  return { step, ticks };
}
