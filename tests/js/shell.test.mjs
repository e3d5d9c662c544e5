import assert from "node:assert/strict";
import { test } from "node:test";

import { describeState } from "../../frontend/static/js/imports.js";
import { askFor, describeChoice } from "../../frontend/static/js/runs.js";
import { readChoice, writeChoice } from "../../frontend/static/js/storage.js";
import { addressOf, opensElsewhere } from "../../frontend/static/js/swap.js";
import { nextTheme } from "../../frontend/static/js/theme.js";
import { refuse } from "../../frontend/static/js/upload.js";

const LEFT = { button: 0, ctrlKey: false, metaKey: false, shiftKey: false, altKey: false };

test("a form's address holds what was filled in, escaped", () => {
  const fields = [["q", "a&b <c>"], ["steps", ""], ["rank", "3"]];
  assert.equal(addressOf("http://h/runs/a/operators?old=1", fields), "http://h/runs/a/operators?q=a%26b+%3Cc%3E&rank=3");
  assert.equal(addressOf("http://h/runs/a/operators?old=1", []), "http://h/runs/a/operators");
});

test("only a plain left click is followed in place", () => {
  assert.equal(opensElsewhere(LEFT), false);
  for (const held of ["ctrlKey", "metaKey", "shiftKey", "altKey"]) assert.equal(opensElsewhere({ ...LEFT, [held]: true }), true);
  assert.equal(opensElsewhere({ ...LEFT, button: 1 }), true);
});

test("the themes come in turn, and from an unknown one the first", () => {
  assert.deepEqual(["system", "light", "dark", "sepia"].map(nextTheme), ["light", "dark", "system", "system"]);
});

test("the button of the run list says what it waits for", () => {
  assert.deepEqual([0, 1, 2, 8].map(describeChoice), ["Select runs to compare", "Select one more to compare", "Compare 2 runs", "Compare 8 runs"]);
});

test("a choice lasts as long as the page where nothing can be stored", () => {
  assert.equal(readChoice("keys", "on"), "on");
  writeChoice("keys", "off");
  assert.equal(readChoice("keys", "on"), "off");
  writeChoice("keys", null);
  assert.equal(readChoice("keys", "on"), "on");
});

test("files that are no traces or too large are refused before they are sent", () => {
  const taken = { limit: 2 ** 20, names: "(\\.json|\\.json\\.gz|rank_?\\d{1,9})$", suffixes: ".json or .json.gz" };
  assert.equal(refuse([{ name: "a.json.gz", size: 10 }, { name: "B.JSON", size: 10 }, { name: "dump_rank_7", size: 10 }], taken), "");
  assert.match(refuse([], taken), /No file was dropped/);
  assert.match(refuse([{ name: "a.txt", size: 1 }], taken), /^a\.txt is not a trace: .* in \.json or \.json\.gz\.$/);
  assert.match(refuse([{ name: "a.json", size: 2 ** 20 + 1 }], taken), /^2 MiB are more than this server takes \(1 MiB\)/);
});

test("an import that waits says its place in the queue", () => {
  const job = { id: "a", state: "waiting", progress_frac: 0, error: null, href: null };
  const places = [0, 1, 2, 3, 10, 20, 21].map((ahead) => describeState({ ...job, ahead }));
  assert.deepEqual(places[0], "Waiting");
  const named = places.slice(1).map((text) => text.split(" ")[0]);
  assert.deepEqual(named, ["2nd", "3rd", "4th", "11th", "21st", "22nd"]);
  assert.equal(places[1], "2nd in the queue");
  assert.equal(describeState({ ...job, state: "importing", ahead: 1 }), "Importing");
});

test("one query asks for as many runs as the server reads", () => {
  const many = Array.from({ length: 90 }, (_, number) => `run-${number}`);
  assert.equal(askFor(many).getAll("run").length, 50);
  const long = many.map((id) => `${"folder/".repeat(30)}${id}`);
  const asked = askFor(long);
  assert.ok(asked.toString().length < 8192);
  assert.deepEqual(asked.getAll("run"), long.slice(0, asked.getAll("run").length));
  assert.deepEqual(askFor(["x".repeat(9000), "a"]).getAll("run").length, 1);
});
