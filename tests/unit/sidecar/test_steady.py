"""Steps that are taken in at once come out as if each had been looked at by itself."""

from __future__ import annotations

import dataclasses
import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from collector.format.schema.layout import events_path
from collector.notes import WORDS_FILE, Notes, write_notes
from collector.ring import codes
from collector.ring.clock import Clock
from collector.ring.words import CODE_SHIFT, PAYLOAD_MASK, WordLog
from collector.sidecar.assemblers import steps as room
from collector.sidecar.steps.row_keeping import State, decode_state, encode_state
from collector.sidecar.steps.steady import Steady, learn_pattern

CLOCK = Clock(0, 0, 0)
HOLD = ("zero", "forward", "backward", "update")
NAMES = {
    "zero": (codes.ZERO_START, codes.ZERO_END),
    "forward": (codes.FORWARD_START, codes.FORWARD_END),
    "backward": (codes.BACKWARD_START, codes.BACKWARD_END),
    "update": (codes.UPDATE_START, codes.UPDATE_END),
    "gc": (codes.GC_START, codes.GC_END),
    "collective": (codes.COLLECTIVE_START, codes.COLLECTIVE_END),
}


class Loop:
    """The words of a training that is mostly, but not always, the same; one that acts calls a model without gradients."""

    def __init__(self, seed: int, acts: bool = False) -> None:
        self.acts = acts
        self.dice = random.Random(seed)
        self.at = 1_000
        self.words: list[int] = []
        self.step = 0

    def add_time(self, code: int) -> None:
        self.at += self.dice.choice((0, 7, 1_000, 250_000))
        self.words.append(code + self.at)

    def add_call(self, name: str) -> None:
        begin, end = NAMES[name]
        self.add_time(begin)
        if self.dice.random() < 0.03:
            self.add_call("gc")
        self.add_time(end)

    def fetch(self, batch: int, ends: bool, loader: int = 0) -> None:
        if ends:
            self.step += 1
            self.words.append(codes.STEP_ENDS_NEXT + self.step)
        if self.step % 16 == 0:
            self.words.append(127 << CODE_SHIFT)
        self.words.append(codes.LOADER + (1 << 16 | loader))
        queue = self.dice.choice((0, 1, 2)) << 48 | self.dice.randrange(4) << 12
        self.words += [codes.QUEUE + queue] if loader == 0 else []
        self.add_time(codes.FETCH_START)
        self.words.append(codes.BATCH + batch)
        self.add_time(codes.FETCH_END)
        self.words.append(codes.SAMPLES + self.dice.choice((0, 16)))

    def train(self, count: int, ahead: int = 0) -> None:
        for batch in range(ahead):
            self.fetch(batch, ends=False)
        for batch in range(ahead, count):
            self.fetch(batch, ends=bool(self.words) and batch > ahead)
            if self.acts:
                self.infer()
            for name in HOLD:
                self.add_call(name)
            if self.dice.random() < 0.04:
                self.add_call(self.dice.choice(("collective", "gc", "zero")))
        self.step += 1
        self.words.append(codes.STEP_ENDS_NEXT + self.step)

    def evaluate(self, count: int) -> None:
        for batch in range(count):
            self.fetch(batch, ends=False, loader=1)
            self.infer()

    def infer(self) -> None:
        self.add_time(codes.FORWARD_START)
        self.words.append(codes.NO_GRAD)
        self.add_time(codes.FORWARD_END)


def make_words(seed: int) -> list[int]:
    loop = Loop(seed, acts=seed % 4 == 3)
    for ahead in (0, 1, 3):
        loop.train(60 + ahead, ahead)
        loop.evaluate(5)
    return loop.words


class Assembly:
    """An assembler over a log of its own."""

    def __init__(self, folder: Path) -> None:
        events_path(folder).mkdir(parents=True)
        loaders = [
            {"id": n, "dataset": "Data", "style": "map", "num_workers": 2, "prefetch_factor": 2, "pins": n == 0}
            for n in range(2)
        ]
        notes = Notes(0, 1, None, "host", 0, 0, 0, 0, options={"data_pipeline": True, "stacks": True})
        write_notes(dataclasses.replace(notes, loaders=loaders), folder)
        self.log = WordLog(events_path(folder) / WORDS_FILE, 1 << 14)
        self.assembler = room.ASSEMBLER(folder, CLOCK)
        self.pieces: dict[str, list[pa.Table]] = {}

    def take_in(self, words: list[int], method: str = "poll") -> None:
        for word in words:
            self.log.write(word & ~PAYLOAD_MASK, word & PAYLOAD_MASK)
        for name, table in getattr(self.assembler, method)().items():
            self.pieces.setdefault(name, []).append(table)

    def rows(self, name: str) -> list[dict[str, Any]]:
        return [row for piece in self.pieces.get(name, []) for row in piece.to_pylist()]


@pytest.mark.parametrize("seed", range(8))
def test_what_is_taken_in_at_once_is_what_is_taken_in_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    words, dice = make_words(seed), random.Random(seed)
    fast, slow = Assembly(tmp_path / "fast"), Assembly(tmp_path / "slow")
    while words:
        count = dice.choice((5, 300, 900))
        piece, words = words[:count], words[count:]
        for assembly, least in ((fast, 0), (slow, 10**9)):
            monkeypatch.setattr(room, "STEPS_WITH_PHASES", least)
            assembly.take_in(piece, "poll" if words else "finish")
        states = [json.dumps(assembly.assembler.checkpoint()) for assembly in (fast, slow)]
        assert states[0] == states[1]
    for name in ("steps", "fetches", "queues"):
        assert fast.rows(name) == slow.rows(name), name
    assert len([row for row in fast.rows("steps") if row["kind"] == "train"]) >= 180


def test_a_checkpoint_of_another_version_is_taken_over() -> None:
    state = State(step=7, detailed=True, position=90, start=5)
    assert decode_state({**encode_state(state), "probed": False}) == state


@pytest.mark.parametrize("acts", [False, True])
def test_most_steps_of_a_plain_loop_are_taken_in_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, acts: bool
) -> None:
    monkeypatch.setattr(room, "STEPS_WITH_PHASES", 0)
    assembly = Assembly(tmp_path / "rank")
    taken: list[int] = []
    add = assembly.assembler._add_steady

    def take(steady: Steady) -> None:
        taken.append(len(steady))
        add(steady)

    assembly.assembler._feed._take = take
    assembly.take_in([])
    loop = Loop(1, acts)
    loop.train(3)
    assembly.take_in(loop.words)
    loop.words.clear()
    loop.dice.random = lambda: 1.0  # type: ignore[method-assign]
    loop.train(200)
    assembly.take_in(loop.words)
    assert sum(taken) > 190


def test_a_pattern_that_is_not_understood_is_no_pattern() -> None:
    plain = [codes.STEP_ENDS_NEXT, codes.LOADER, codes.FETCH_START, codes.BATCH, codes.FETCH_END]
    update = [codes.UPDATE_START, codes.UPDATE_END]
    assert learn_pattern([*plain, *update]) is not None
    assert learn_pattern([*plain, *update, codes.REDUCED]) is None
    assert learn_pattern([*plain, *plain[1:], *update]) is None
    assert learn_pattern([codes.STEP_ENDS_NEXT, *update, *plain[1:]]) is None
