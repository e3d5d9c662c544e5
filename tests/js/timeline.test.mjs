// Pure parts of the timeline's viewer, run by node: `node --test tests/js/`.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { noteClock, ownSpan, placeRank, stretch, toOwn, toView } from "../../frontend/static/js/timeline/clocks.js";
import { blend, classOf, colorNames, contrast, inkOn, luminance, parseHex, pixel, spread, VEIL } from "../../frontend/static/js/timeline/colors.js";
import { valueAt } from "../../frontend/static/js/timeline/counters.js";
import { layPath } from "../../frontend/static/js/timeline/critical.js";
import { layOut, rowAt, rowOfLane, rowsBetween, trackKey } from "../../frontend/static/js/timeline/layout.js";
import { unpackMeta } from "../../frontend/static/js/timeline/meta.js";
import { busyColumns } from "../../frontend/static/js/timeline/overview.js";
import { readQuery, toggleMark, writeQuery } from "../../frontend/static/js/timeline/state.js";
import { amount, column, duration, moment, rulerTicks, shorten } from "../../frontend/static/js/timeline/text.js";
import { mix } from "../../frontend/static/js/timeline/strips.js";
import { decodeTile, findInTile, findReach } from "../../frontend/static/js/timeline/tile.js";
import { chooseLevel, clamp, fit, pan, tilesOf, zoom } from "../../frontend/static/js/timeline/view.js";

const LEVELS = { rawLevel: 18, topLevel: 27, tileBits: 10 };

/** A tile of one lane (number 5) with the given [start, length] slices and one counter point, as the server packs it. */
function packTile(slices, begin = 1000) {
  const n = slices.length;
  const padded = (size) => (size + 3) & ~3;
  const buffer = new ArrayBuffer(40 + 8 + 16 * n + padded(2 * n) + padded(n) + 8 + 16);
  const view = new DataView(buffer);
  [0x54, 0x4c, 0x54, 0x31].forEach((byte, i) => view.setUint8(i, byte));
  [n, 1, 1, 1, 18].forEach((value, i) => view.setUint32(4 + 4 * i, value, true));
  view.setFloat64(24, begin, true);
  view.setFloat64(32, 1, true);
  view.setUint32(40, 5, true);
  view.setUint32(44, n, true);
  slices.forEach(([start, length], i) => {
    view.setInt32(48 + 4 * i, start, true);
    view.setUint32(48 + 4 * (n + i), length, true);
    view.setUint32(48 + 4 * (2 * n + i), 100 + i, true);
    view.setUint32(48 + 4 * (3 * n + i), i % 2, true);
    view.setUint16(48 + 16 * n + 2 * i, 1, true);
    view.setUint8(48 + 16 * n + padded(2 * n) + i, 255);
  });
  const tail = 48 + 16 * n + padded(2 * n) + padded(n);
  view.setUint32(tail, 3, true);
  view.setUint32(tail + 4, 1, true);
  view.setInt32(tail + 8, 7, true);
  [1, 2, 1.5].forEach((value, i) => view.setFloat32(tail + 12 + 4 * i, value, true));
  return buffer;
}

test("a tile is decoded as it was packed, whatever its number of slices", () => {
  for (const n of [1, 2, 3, 4, 5]) {
    const tile = decodeTile(packTile(Array.from({ length: n }, (_, i) => [100 * i, 50])));
    assert.deepEqual([...tile.start], Array.from({ length: n }, (_, i) => 100 * i));
    assert.deepEqual(tile.lanes.get(5), [0, n]);
    assert.deepEqual([tile.begin, tile.tick, tile.level], [1000, 1, 18]);
    assert.deepEqual([tile.counters.get(3), tile.time[0], tile.low[0], tile.high[0], tile.last[0]], [[0, 1], 7, 1, 2, 1.5]);
  }
});

test("what is no tile is refused", () => {
  assert.throws(() => decodeTile(new ArrayBuffer(8)));
  assert.throws(() => decodeTile(new ArrayBuffer(64)));
});

test("a slice is found under the pointer, and beside it within the tolerance", () => {
  const tile = decodeTile(packTile([[0, 50], [100, 1], [200, 500]]));
  assert.equal(findInTile(tile, 5, 1049, 0), 0);
  assert.equal(findInTile(tile, 5, 1060, 0), -1);
  assert.equal(findInTile(tile, 5, 1060, 20), 0);
  assert.equal(findInTile(tile, 5, 1098, 5), 1);
  assert.equal(findInTile(tile, 5, 1699, 0), 2);
  assert.equal(findInTile(tile, 6, 1049, 0), -1);
});

test("the slices of a lane reach over a part of the view, or none of them does", () => {
  const tile = decodeTile(packTile([[0, 50], [100, 1], [200, 500]]));
  assert.deepEqual(findReach(tile, 5, { t0: 1040, t1: 1060 }), { t0: 1040, t1: 1050 });
  assert.deepEqual(findReach(tile, 5, { t0: 900, t1: 1150 }), { t0: 1000, t1: 1101 });
  assert.deepEqual(findReach(tile, 5, { t0: 1300, t1: 1400 }), { t0: 1300, t1: 1400 });
  assert.equal(findReach(tile, 5, { t0: 1050, t1: 1100 }), null);
  assert.equal(findReach(tile, 5, { t0: 1701, t1: 1800 }), null);
  assert.equal(findReach(tile, 6, { t0: 1000, t1: 2000 }), null);
});

test("zooming keeps the moment under the pointer where it is", () => {
  const span = { t0: 100, t1: 1100 };
  const inside = zoom(span, 0.5, 350);
  assert.equal((350 - inside.t0) / (inside.t1 - inside.t0), 0.25);
  const back = zoom(inside, 2, 350);
  assert.deepEqual(back, span);
});

test("the view stays at the trace, however far one pans or zooms", () => {
  const whole = 1e9;
  for (const span of [pan({ t0: 0, t1: 1e6 }, -1e12), pan({ t0: 0, t1: 1e6 }, 1e12), zoom({ t0: 0, t1: 1e9 }, 1e6, 5e8)]) {
    const kept = clamp(span, whole);
    assert.ok(kept.t1 > 0 && kept.t0 < whole && kept.t1 - kept.t0 <= 1.1 * whole + 1);
  }
  const tiny = clamp({ t0: 500, t1: 500.001 }, whole);
  assert.ok(tiny.t1 - tiny.t0 >= 99);
});

test("the level follows the zoom, and stays within what there is", () => {
  assert.equal(chooseLevel(1, LEVELS), 18);
  assert.equal(chooseLevel(2 ** 19.9, LEVELS), 18);
  assert.equal(chooseLevel(2 ** 22.5, LEVELS), 22);
  assert.equal(chooseLevel(2 ** 40, LEVELS), 27);
});

test("the tiles of a view cover it without a gap", () => {
  const size = 2 ** 28;
  const numbers = tilesOf({ t0: 2.5 * size, t1: 5.1 * size }, 18, LEVELS, 100 * size);
  assert.deepEqual(numbers, [2, 3, 4, 5]);
  assert.deepEqual(tilesOf({ t0: -5 * size, t1: -size }, 18, LEVELS, 100 * size), []);
  assert.deepEqual(tilesOf({ t0: -size, t1: 0.5 * size }, 18, LEVELS, 100 * size), [0]);
});

test("a fitted slice is whole and in the middle", () => {
  const span = fit(1000, 400);
  assert.deepEqual(span, { t0: 800, t1: 1600 });
});

const TRACKS = [
  { name: "Steps", kind: "step", group: "Training", unit: "", firstLane: 0, lanes: 1 },
  { name: "main", kind: "thread", group: "python", unit: "", firstLane: 1, lanes: 3 },
];
const META = { rank: 0, tracks: TRACKS, counters: [{ name: "queue", kind: "counter", group: "Queues", unit: "items", firstLane: 0, lanes: 0 }] };
const sources = new Map([[0, { meta: META, shift: 0, rate: 1, note: "", colors: { rgb: [], idle: new Uint8Array(0) } }]]);

test("every lane has a row, and rows do not overlap", () => {
  const { rows, height } = layOut([0], sources, { folded: new Set() });
  assert.deepEqual(rows.filter((row) => row.kind === "lane").map((row) => row.lane), [0, 1, 2, 3]);
  for (let i = 1; i < rows.length; i++) assert.ok(rows[i].y >= rows[i - 1].y + rows[i - 1].height);
  assert.ok(height >= rows.at(-1).y + rows.at(-1).height);
  for (const row of rows) assert.equal(rowAt(rows, row.y + 1), row);
  assert.deepEqual(rowsBetween(rows, 0, height), [0, rows.length]);
});

test("folding hides lanes, groups and ranks; other ranks are headings until they are opened", () => {
  const open = layOut([0], sources, { folded: new Set() });
  const main = open.rows.find((row) => row.label === "main");
  assert.equal(layOut([0], sources, { folded: new Set([main.key]) }).rows.filter((row) => row.kind === "lane").length, 2);
  assert.equal(rowOfLane(layOut([0], sources, { folded: new Set([main.key]) }).rows, 0, 3), null);
  const several = layOut([0, 1, 2], sources, { folded: new Set(["r0"]) }).rows;
  assert.deepEqual(several.map((row) => [row.kind, row.folded]), [["rank", true], ["rank", true], ["rank", true]]);
});

test("a filter keeps the tracks whose name or group contains it", () => {
  const rows = layOut([0], sources, { folded: new Set(), filter: "python" }).rows;
  assert.deepEqual([...new Set(rows.filter((row) => row.kind === "lane").map((row) => row.track.name))], ["main"]);
});

test("names are shortened in the middle", () => {
  assert.equal(shorten("abcdefghij", 10), "abcdefghij");
  assert.equal(shorten("abcdefghij", 7), "abcd…ij");
  assert.equal(shorten("x".repeat(10000), 50).length, 50);
});

test("times are written with one unit and three digits", () => {
  assert.deepEqual(column("data_wait_ns", 37992886), ["data wait", "38.0 ms"]);
  assert.deepEqual(column("bytes_read_bytes", 2048), ["bytes read", "2.00 KiB"]);
  assert.deepEqual([column("samples", 16), column("note_ns", "late")], [["samples", 16], ["note_ns", "late"]]);
  assert.deepEqual([0, 5, 1500, 177592000, 2.5e9].map(duration), ["0 ms", "5.00 ns", "1.50 µs", "178 ms", "2.50 s"]);
  assert.equal(moment(1_273_900_000, 1e5), "1.2739 s");
  assert.equal(amount(1.5 * 2 ** 30, "bytes"), "1.50 GiB");
  assert.equal(amount(4, "items"), "4 items");
});

test("the ruler's ticks are round, ordered and not too many", () => {
  for (const [begin, end] of [[0, 1e3], [123456789, 133456789], [-5e8, 9e9]]) {
    const { step, ticks } = rulerTicks(begin, end, 10);
    assert.ok(ticks.length >= 3 && ticks.length <= 12, String(ticks));
    assert.ok(ticks.every((tick) => Math.abs(tick / step - Math.round(tick / step)) < 1e-6));
  }
});

test("pinned tracks stand at the top, those that scroll below them", () => {
  const pins = new Set([trackKey(0, TRACKS[1])]);
  const { pinned, pinnedHeight, rows } = layOut([0, 1], sources, { folded: new Set(), pins });
  assert.deepEqual(pinned.map((row) => [row.lane, row.label]), [[1, "0: main"], [2, ""], [3, ""]]);
  assert.equal(pinned[0].y, 0);
  assert.equal(rows[0].y, pinnedHeight);
  assert.equal(rows.filter((row) => row.kind === "lane").length, 4);
});

test("the filter counts the tracks that it lets through, folded ones too", () => {
  const { shown, tracks } = layOut([0, 1], sources, { folded: new Set(["r0"]), filter: "main" });
  assert.deepEqual([shown, tracks], [1, 3]);
});

const VIEW = {
  span: { t0: 10, t1: 500 }, whole: 1000, origin: 7000, main: 3, selected: { rank: 3, id: 42 }, marks: [100, 200], filter: "stream",
  pins: new Set(["r3tabc"]), folded: new Set(["r3", "r3gx1"]), sources: new Map([[3, {}], [5, {}]]),
};

test("a view survives the way through the address", () => {
  const query = writeQuery("?rank=3&step=9", VIEW, "a b");
  assert.equal(query, "?rank=3&t0=7010&t1=7500&sel=42&q=a+b&m=7100,7200&tracks=stream&pin=r3tabc&fold=r3,r3gx1&open=5");
  assert.deepEqual(readQuery(query), {
    t0: 7010, t1: 7500, selected: { rank: null, id: 42 }, text: "a b", marks: [7100, 7200], filter: "stream", pins: ["r3tabc"],
    folded: ["r3", "r3gx1"], open: [5],
  });
  assert.match(writeQuery("", { ...VIEW, selected: { rank: 5, id: 1 } }, ""), /sel=5\.1&/);
});

test("what an address cannot mean is left out", () => {
  const found = readQuery("?t0=x&t1=&sel=NaN&m=a,1&pin=<b>,r0tz&fold=,r&open=x");
  assert.deepEqual(found, { t0: null, t1: null, selected: null, text: "", marks: [1], filter: "", pins: ["r0tz"], folded: [], open: [] });
});

test("names that count up are unpacked", () => {
  const { names, nameCategories } = unpackMeta({ names: ["a", ["Step ", 9, 3]], nameCategories: [[1, 1], [0, 3]] });
  assert.deepEqual([names, nameCategories], [["a", "Step 9", "Step 10", "Step 11"], [1, 0, 0, 0]]);
});

test("a counter's value holds until the next point", () => {
  const tile = { begin: 100, tick: 10, counters: new Map([[2, [1, 3]]]), time: [0, 1, 5], last: [9, 7, 8] };
  assert.deepEqual([105, 110, 149, 150, 900].map((ns) => valueAt(tile, 2, ns)), [null, 7, 7, 8, 8]);
  assert.equal(valueAt(tile, 0, 200), null);
});

test("the critical path lies on its lanes, and steps from one to the next", () => {
  const path = { rank: 0, starts: [0, 100, 300, 300.1, 900], ends: [100, 300, 300.1, 500, 1000], lanes: [0, 1, 0, 0, 1] };
  const rows = new Map([[0, { y: 0, height: 20 }], [1, { y: 20, height: 20 }]]);
  const { boxes, steps } = layPath(path, rows, { t0: 50, t1: 550 }, 500);
  assert.deepEqual(boxes.map(({ x, y, width }) => [x, y, Math.round(width)]), [[0, 0, 50], [50, 20, 200], [250.10000000000002, 0, 200]]);
  assert.deepEqual(steps, [{ x: 50, from: 10, to: 30 }, { x: 250, from: 10, to: 30 }]);
  assert.deepEqual(layPath(path, new Map([[0, { y: 0, height: 20 }]]), { t0: 600, t1: 950 }, 100), { boxes: [], steps: [] });
});

test("a mark is set, and taken away by setting it again nearby", () => {
  assert.deepEqual(toggleMark([10, 90], 50, 5), [10, 50, 90]);
  assert.deepEqual(toggleMark([10, 50, 90], 52, 5), [10, 90]);
});

test("colours follow the category, and for operators what the name says", () => {
  assert.equal(classOf("kernel", "gemm", {}), "compute");
  assert.equal(classOf("phase", "Data wait", { "Data wait": "data" }), "data");
  assert.equal(classOf("operator", "AddmmBackward0", {}), "backward");
  assert.equal(classOf("annotation", "Optimizer.step#AdamW.step", {}), "optimizer");
  assert.deepEqual(parseHex("#d37860"), [211, 120, 96]);
  assert.equal(pixel([1, 2, 3]), 0xff030201);
  assert.deepEqual(blend([0, 0, 0], [100, 200, 50], 0.5), [50, 100, 25]);
  assert.ok(spread("aten::mm") >= 0 && spread("aten::mm") <= 1 && spread("a") !== spread("b"));
});

test("text on a slice has a contrast of 4.5 to 1 or more, whatever the colour", () => {
  const tokens = readFileSync(new URL("../../frontend/static/css/tokens.css", import.meta.url), "utf8");
  const themes = [...tokens.matchAll(/\{([^}]*color-scheme[^}]*)\}/g)].map(([, block]) => Object.fromEntries([...block.matchAll(/--([a-z0-9-]+): (#[0-9a-f]{6});/g)].map(([, name, hex]) => [name, parseHex(hex)])));
  const names = Array.from({ length: 200 }, (_, i) => `name ${i}`);
  const readInk = (ink) => (ink[0] === "#" ? parseHex(ink) : ink.match(/\d+/g).map(Number));
  assert.equal(themes.length, 2);
  for (const [dark, classes] of themes.map((theme, i) => [i === 1, theme])) {
    for (const category of ["kernel", "communication", "overlap", "memcpy", "stage", "wait", "runtime", "operator"]) {
      for (const color of colorNames([...names, "Optimizer.step#SGD", "AddBackward0"], [...names, "", ""].map(() => category), { dark, classes }, {}).rgb) {
        const veiled = blend(color, classes.ground, VEIL);
        assert.ok(contrast(color, readInk(inkOn(color))) >= 4.5, `${category} ${color}`);
        assert.ok(contrast(veiled, readInk(inkOn(veiled, classes["text-2"]))) >= 4.5, `veiled ${category} ${color}`);
      }
    }
  }
});

test("text takes the colour that is wished for where it can be read", () => {
  assert.equal(inkOn([10, 10, 10], [200, 200, 200]), "rgb(200 200 200)");
  assert.equal(inkOn([190, 190, 190], [200, 200, 200]), "#000000");
  assert.ok(Math.abs(contrast([0, 0, 0], [255, 255, 255]) - 21) < 1e-9 && luminance([0, 0, 0]) === 0);
});

test("a rank is put on the clock of the first by offset and drift, and read back", () => {
  const meta = { ...META, rank: 3, origin: 5_000_000 };
  const clock = { rank: 3, known: "aligned", anchor: 4_000_000, shift: -2_000_000, drift: 1e-4 };
  const source = { meta, ...placeRank(meta, clock, 1_000_000, 1_000_000) };
  // 6 ms on its own clock are 1 ms after its origin: 6 - 2 + 2e-4 ms on the first's, and 1 ms less since that one's origin.
  assert.ok(Math.abs(toView(source, 1_000_000) - 3_000_200) < 1e-6);
  assert.ok(Math.abs(toOwn(source, 3_000_200) - 1_000_000) < 1e-6);
  const { t0, t1 } = ownSpan(source, { t0: 3_000_200, t1: 3_000_200 + 1000.1 });
  assert.ok(Math.abs(t1 - t0 - 1000) < 1e-6);
});

test("a rank without a common clock begins with the first, and one without a clock keeps its own", () => {
  const meta = { ...META, origin: 9e12 };
  assert.deepEqual(placeRank(meta, { known: "unknown", shift: 0, drift: 0, anchor: 0 }, 500, 700), { shift: 200, rate: 1 });
  assert.deepEqual(placeRank(meta, undefined, 9e12 - 40, 0), { shift: 40, rate: 1 });
  assert.equal(noteClock({ known: "unknown" }, String), "own start");
  assert.equal(noteClock({ known: "aligned", shift: -2310 }, String), "−2310");
  assert.equal(noteClock({ known: "host", shift: 0 }, String), "");
  assert.equal(noteClock(undefined, String), "");
});

test("the view reaches over all open ranks, and what is seen of it stays where it is", () => {
  const state = { origin: 1000, whole: 100, span: { t0: 10, t1: 60 }, marks: [20], cursor: null, sources: new Map() };
  state.sources.set(0, { meta: { span: 100 }, shift: 0, rate: 1 });
  state.sources.set(1, { meta: { span: 300 }, shift: -50, rate: 1 });
  stretch(state);
  assert.deepEqual([state.origin, state.whole, state.span, state.marks], [950, 300, { t0: 60, t1: 110 }, [70]]);
  assert.deepEqual([...state.sources.values()].map(({ shift }) => shift), [50, 0]);
  state.span = { t0: 0, t1: 300 };
  state.sources.set(2, { meta: { span: 500 }, shift: 0, rate: 1 });
  stretch(state);
  assert.deepEqual([state.whole, state.span], [500, { t0: 0, t1: 500 }]);
});

test("thin slices that share a pixel add up", () => {
  const [white, blue] = [pixel([255, 255, 255]), pixel([0, 0, 255])];
  assert.equal(mix(white, blue, 0), white);
  assert.equal(mix(white, blue, 256), blue);
  assert.equal(mix(white, pixel([0, 100, 0]), 128), pixel([127, 177, 127]));
  assert.equal(mix(mix(white, blue, 128), blue, 128) & 255, 63);
});

test("the minimap counts busy lanes", () => {
  const tile = decodeTile(packTile([[0, 500], [500, 250]], 0));
  const busy = busyColumns(tile, 1000, 4);
  assert.deepEqual([...busy], [1, 1, 1, 0]);
});
