"""Traces drawn by chance on a coarse grid of times, so that starts and ends often meet: every table that is read of them.

What is expected lies in tests/golden/words/drawn: nearly every decision on steps, phases, nesting, links and memory
shows in a line of one of them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from collector.format.schema.errors import TraceError
from collector.traces.format import TraceTables
from tests.support.reading import codes_of, read_events
from tests.support.showing import show
from tests.support.traces import BASE_US, Event, annotation, call, copy, kernel, operator, step

FETCH = "enumerate(DataLoader)#_Iter.__next__"
UPDATE = "Optimizer.step#SGD.step"
BACKWARD = "autograd::engine::evaluate_function: AddmmBackward0"
GRID_US = 50


class Draw:
    """A loop drawn from a seed: which marks it has, how long its parts take, and what the device does for it."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.has = {
            name: self.random.random() < share
            for name, share in (
                ("markers", 0.4),
                ("loader", 0.6),
                ("update", 0.6),
                ("backward", 0.7),
                ("device", 0.6),
                ("collectives", 0.4),
                ("host collectives", 0.3),
                ("memory", 0.5),
                ("another thread", 0.3),
                ("two updates", 0.2),
                ("notes", 0.4),
            )
        }
        self.at = 0
        self.link = 0

    def span(self, most: int = 6) -> tuple[int, int]:
        """Return the next stretch of host time, at times behind a pause, at times of no length."""
        pause = self.random.choice((0, 0, 0, 1, 2, 20, 21))
        begin = self.at + pause * GRID_US
        length = self.random.choice((0, *range(1, most))) * GRID_US
        self.at = begin + length
        return begin, length

    def events(self) -> list[Event]:
        found: list[Event] = []
        for number in range(self.random.randint(2, 6)):
            begin = self.at
            found += self.list_step()
            if self.has["markers"]:
                found.append(step(number + 3, begin, self.at - begin + self.random.choice((0, 0, GRID_US))))
            if self.has["notes"]:
                found.append(annotation(f"iteration {number}", begin, self.at - begin))
        return found

    def list_step(self) -> Iterator[Event]:
        has = self.has
        if has["loader"]:
            begin, length = self.span()
            yield annotation(FETCH, begin, length)
            if self.random.random() < 0.6:
                yield operator("aten::stack", begin, length)
        if self.random.random() < 0.6:
            yield from self.compute("aten::copy_")
        for _ in range(self.random.randint(1, 2)):
            yield from self.compute(self.random.choice(("aten::mm", "aten::add")))
        if has["backward"]:
            yield from self.compute(BACKWARD)
            if has["host collectives"]:
                begin, length = self.span()
                yield {**operator("gloo:all_reduce", begin, length), "tid": self.random.choice((100, 300))}
        if has["update"] and self.random.random() < 0.9:
            for _ in range(1 + has["two updates"]):
                yield annotation(UPDATE, *self.span())
        if has["another thread"]:
            begin = max(self.at - 4 * GRID_US, 0)
            yield {**operator("aten::mul", begin, self.random.randint(0, 4) * GRID_US), "tid": 300}

    def compute(self, name: str) -> Iterator[Event]:
        begin, length = self.span()
        shape = {"Input Dims": [[8, 4], [4, self.random.choice((2, 3))]], "Input type": ["float", "float"]}
        yield operator(name, begin, length, **{"External id": self.link + 1, "Sequence number": self.link % 5, **shape})
        if self.random.random() < 0.4:
            yield operator("aten::empty", begin, length // 2)
        if self.has["memory"]:
            yield self.allocate(begin + length // 2)
        if self.has["device"]:
            yield from self.launch(begin, length)

    def allocate(self, at: int) -> Event:
        size = self.random.choice((512, 1000, -512, 64))
        given = {"Addr": 100 + abs(size), "Bytes": size, "Device Type": self.random.choice((0, 1)), "Device Id": 0}
        total = {"Total Allocated": self.random.choice((512, 4096)), "Total Reserved": 8192}
        place = {"ph": "i", "name": "[memory]", "cat": "cpu_instant_event", "pid": 100, "tid": 100, "s": "t"}
        return {**place, "ts": BASE_US + at, "args": {**given, **total}}

    def launch(self, begin: int, length: int) -> Iterator[Event]:
        self.link += 1
        late = begin + self.random.choice((0, 1, 2, 4, 8)) * GRID_US
        long = self.random.choice((0, 1, 2, 5)) * GRID_US
        yield call(begin, length // 2, self.link, self.random.choice(("cudaLaunchKernel", "cudaMemcpyAsync")))
        name = self.random.choice(("gemm_sm90", "elementwise", "ncclDevKernel_AllReduce", "copy"))
        if name == "copy":
            yield copy(late, long, self.link, bytes=4096)
        elif name.startswith("nccl") and self.has["collectives"]:
            told = {"Collective name": "allreduce", "In msg nelems": 64, "Out msg nelems": 64, "dtype": "Float"}
            group = {"Process Group Name": "0", "Group size": 4, "Process Group Ranks": "[0, 1, 2, 3]"}
            yield kernel(name, late, long, self.link, stream=20, **told, **group)
        elif self.random.random() < 0.9:
            shape = {"blocks per SM": 1.5, "est. achieved occupancy %": self.random.choice((0, 50)), "grid": [4, 1, 1]}
            yield kernel(name, late, long, self.link, stream=self.random.choice((7, 7, 8)), **shape)
        else:
            yield kernel(name, late, long, 0)


def list_steps(read: TraceTables) -> Iterator[str]:
    tables, told = read.tables, read.facts.facts
    yield f"{told.get('steps_told_by')} {told.get('steps_confidence_frac')} {sorted(codes_of(read))}"
    phases = tables["phases"].to_pylist()
    for row in tables["steps"].to_pylist():
        own = [entry for entry in phases if entry["index"] == row["index"]]
        parts = [f"{entry['phase']} {at(entry['start_ns'])}+{at(entry['duration_ns'])}" for entry in own]
        place = f"{at(row['start_ns'])}+{at(row['duration_ns'])}"
        yield f"{row['kind']} {row['step']} {place}: {', '.join(parts)}; communication {show(row['communication_total_ns'])}"


def at(time_ns: int) -> float:
    return round(time_ns / 1000 / GRID_US, 2)


def list_rows(read: TraceTables) -> Iterator[str]:
    """Yield each row of the other tables, without what is empty in it."""
    for name in sorted(read.tables):
        if name in ("steps", "phases"):
            continue
        for row in read.tables[name].to_pylist():
            yield f"{name}: " + " ".join(
                f"{key}={show(value)}" for key, value in row.items() if value not in (None, "")
            )


@pytest.mark.parametrize("hundred", range(4))
def test_steps_and_phases_of_drawn_traces(hundred: int, tmp_path: Path, golden: Callable[[str, str], None]) -> None:
    lines: list[str] = []
    for seed in range(20 * hundred, 20 * hundred + 20):
        chosen = {3: "optimizer", 7: "whole", 11: "aten::mm", 15: "DataLoader"}.get(seed % 16)
        try:
            read = read_events(tmp_path, Draw(seed).events(), steps_from=chosen)
        except TraceError as error:
            lines.append(f"{seed}: {type(error).__name__}")
            continue
        lines += [f"{seed}:", *list_steps(read)]
    golden(f"drawn/steps-{hundred}", "\n".join(lines) + "\n")


@pytest.mark.parametrize("seed", range(6))
def test_every_table_of_a_drawn_trace(seed: int, tmp_path: Path, golden: Callable[[str, str], None]) -> None:
    draw = Draw(1000 + seed)
    draw.has.update(device=True, memory=True, collectives=True)
    golden(f"drawn/tables-{seed}", "\n".join(list_rows(read_events(tmp_path, draw.events()))) + "\n")
