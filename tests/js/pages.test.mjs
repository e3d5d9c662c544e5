import assert from "node:assert/strict";
import { test } from "node:test";

import { describeCell, findCell, writeDuration } from "../../frontend/static/js/heat.js";
import { countSteps } from "../../frontend/static/js/live.js";
import { addressOfMoment } from "../../frontend/static/js/memory.js";
import { addressOfStep } from "../../frontend/static/js/steps.js";

const CELLS = { first: [1, 4], size: 3, ranks: [0, 5], values: [[10, 2_500_000], [1_500, -1]] };

test("a cell is described by its rank, its steps and its time", () => {
  assert.equal(describeCell(CELLS, 0.1, 0.1), "Rank 0, steps 1–3: 10 ns");
  assert.equal(describeCell(CELLS, 0.9, 0.2), "Rank 0, steps 4–6: 2.5 ms");
  assert.equal(describeCell(CELLS, 0, 0.99), "Rank 5, steps 1–3: 1.5 µs");
});

test("a run that only infers has batches", () => {
  const cells = { ...CELLS, noun: /** @type {const} */ ("batch") };
  assert.equal(describeCell(cells, 0.1, 0.1), "Rank 0, batches 1–3: 10 ns");
  assert.equal(describeCell(cells, 1, 1), "Rank 5, batches 4–6: no batch");
  assert.equal(describeCell({ ...cells, size: 1 }, 0, 0), "Rank 0, batch 1: 10 ns");
});

test("the edge of the picture belongs to its last cell, and a rank without the step says so", () => {
  assert.equal(describeCell(CELLS, 1, 1), "Rank 5, steps 4–6: no step");
  assert.equal(describeCell({ ...CELLS, size: 1 }, 0, 0), "Rank 0, step 1: 10 ns");
  assert.equal(describeCell({ first: [], size: 1, ranks: [], values: [] }, 0.5, 0.5), "");
});

test("durations have three digits", () => {
  assert.equal(writeDuration(1_234_567_890), "1.23 s");
  assert.equal(writeDuration(0), "0 ns");
});

test("a moment is exact however late in the run it is, and the rest of the query stays", () => {
  const address = addressOfMoment("http://h/runs/a/memory?steps=1-2#tensors", "9007199254740993", 0.5);
  assert.equal(address, "http://h/runs/a/memory?steps=1-2&at_ns=9007199255240993#moment");
});

test("a cell leads to its rank and its first step", () => {
  assert.deepEqual(findCell(CELLS, 0.9, 0.1), { rank: 0, step: 4, value: 2_500_000 });
  assert.equal(findCell({ first: [], size: 1, ranks: [], values: [] }, 0.5, 0.5), null);
});

test("a point opens its step, and the filter is kept", () => {
  const address = addressOfStep("http://h/runs/a/steps", "?rank=2&steps=10-40&tab=x", 16.6);
  assert.equal(address, "http://h/runs/a/steps?rank=2&steps=10-40&step=17");
  assert.equal(addressOfStep("http://h/runs/a/steps?rank=0", "", 1), "http://h/runs/a/steps?rank=0&step=1");
});

test("one step is counted in the singular", () => {
  assert.deepEqual([0, 1, 2_000].map(countSteps), ["0 steps", "1 step", "2,000 steps"]);
});
