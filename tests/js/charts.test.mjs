import assert from "node:assert/strict";
import { test } from "node:test";

import { quoteCell, writeCsv } from "../../frontend/static/js/csv.js";
import { isDark, readZoom, recolor } from "../../frontend/static/js/figure.js";

const DARK = { "#111eae": "#2f47fa" };

test("colours of the light ground become those of the dark one, with their opacity", () => {
  const figure = { data: [{ line: { color: "#111eae" }, fillcolor: "#111eae33" }] };
  assert.deepEqual(recolor(figure, DARK), { data: [{ line: { color: "#2f47fa" }, fillcolor: "#2f47fa33" }] });
});

test("what is no colour of the palette stays, also a name that looks like one", () => {
  const figure = { names: ["#111eae or so", "#ABCDEF", null], values: [1, 2, null], meta: { dark: DARK } };
  assert.deepEqual(recolor(figure, DARK), figure);
});

test("a figure is copied, never written into", () => {
  const figure = { color: "#111eae" };
  recolor(figure, DARK);
  assert.equal(figure.color, "#111eae");
});

test("a ground is dark by how bright it looks", () => {
  assert.equal(isDark("rgb(13, 17, 23)"), true);
  assert.equal(isDark("rgb(255, 255, 255)"), false);
  assert.equal(isDark("nonsense"), false);
});

test("a zoom is a range of numbers, the whole, or nothing", () => {
  assert.deepEqual(readZoom({ "xaxis.range[0]": 1, "xaxis.range[1]": 9 }), [1, 9]);
  assert.deepEqual(readZoom({ "xaxis.range": [2, 3] }), [2, 3]);
  assert.equal(readZoom({ "xaxis.autorange": true }), "all");
  assert.equal(readZoom({ width: 300 }), null);
});

test("a cell of CSV is quoted where it must be, and never runs as a formula", () => {
  assert.equal(quoteCell("aten::mm"), "aten::mm");
  assert.equal(quoteCell('a "b", c'), '"a ""b"", c"');
  assert.equal(quoteCell("two\nlines"), '"two\nlines"');
  assert.equal(quoteCell("=HYPERLINK(1)"), "'=HYPERLINK(1)");
  assert.equal(quoteCell("@SUM(1)"), "'@SUM(1)");
  assert.equal(quoteCell("-2+cmd"), "'-2+cmd");
  assert.equal(quoteCell("\r=1"), '"\'\r=1"');
  assert.deepEqual(["-2", "+1.5e3", "-.5"].map(quoteCell), ["-2", "+1.5e3", "-.5"]);
});

test("rows become lines that end as RFC 4180 asks", () => {
  assert.equal(writeCsv([["Name", "Time"], ["a,b", "1 ms"]]), 'Name,Time\r\n"a,b",1 ms\r\n');
  assert.equal(writeCsv([]), "");
});
