"""Traces drawn by chance on a coarse grid of times, so that starts and ends often meet: every table that is read of them.

What is expected lies in tests/golden/words/drawn: nearly every decision on steps, phases, nesting, links and memory
shows in a line of one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from collector.format.schema.errors import TraceError
from collector.traces.format import TraceTables
from tests.support.drawn_traces import GRID_US, Draw
from tests.support.reading import codes_of, read_events
from tests.support.showing import show


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
