"""The graph of one step: its phases in sequence, either measured or derived from sums, and their times on the device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from collector.format.phases import PHASE_NAMES
from collector.format.run import RankRun
from collector.format.steps import PhaseShare
from profiler_server.analysis.tables import choose, find_rows, find_sound

MOST_STRETCHES = 400
"""Stretches above which a step is drawn by phase, because single stretches would be invisible."""


@dataclass(frozen=True)
class Stretch:
    """A time range of one phase. `start_ns` is relative to the start of the step."""

    phase: str
    start_ns: float
    duration_ns: float


@dataclass(frozen=True)
class CollectiveStretch:
    """A collective of a step. `row` is its row in the graph: the process group, and whether the device ran the
    collective.
    """

    row: str
    name: str
    start_ns: float
    duration_ns: float


@dataclass(frozen=True)
class StepGraph:
    """The graph of one step, or of the mean of many (`step` and `start_ns` are None). `measured` is False if only the
    time of each phase is known, not its place.
    """

    step: int | None
    start_ns: int | None
    duration_ns: float
    stretches: tuple[Stretch, ...]
    collectives: tuple[CollectiveStretch, ...]
    measured: bool


def average_graph(phases: Sequence[PhaseShare]) -> StepGraph:
    """Return the graph of the mean phases, one after the other in step order."""
    lengths = {phase.name: phase.mean_ns for phase in phases}
    stretches = _lay_out(lengths)
    return StepGraph(None, None, sum(lengths.values()), stretches, (), measured=False)


def trace_step(rank: RankRun, steps: pa.Table, step: int) -> StepGraph | None:
    """Return the graph of one training step; None if no step has this number. Raises NewerSchemaError."""
    rows = choose(steps.filter(pc.equal(steps["step"], step)), "kind", "train")
    if not rows.num_rows:
        return None
    row = rows.slice(0, 1).to_pylist()[0]
    measured = _read_stretches(rank, row["index"], row["start_ns"])
    if sum(stretch.duration_ns for stretch in measured) != row["duration_ns"]:
        measured = ()  # only a part of them was kept
    stretches = measured or _lay_out({name: row[f"{name}_ns"] for name in PHASE_NAMES})
    collectives = _read_collectives(rank, step, row["start_ns"])
    return StepGraph(step, row["start_ns"], row["duration_ns"], stretches, collectives, bool(measured))


def _lay_out(lengths: dict[str, float]) -> tuple[Stretch, ...]:
    stretches = []
    at = 0.0
    for name in PHASE_NAMES:
        length = lengths.get(name, 0.0)
        if length > 0:
            stretches.append(Stretch(name, at, length))
        at += length
    return tuple(stretches)


def _read_stretches(rank: RankRun, index: int, start_ns: int) -> tuple[Stretch, ...]:
    table = find_sound(rank, "phases", ("phase", "start_ns", "duration_ns", "index"), pc.field("index") == index)
    joined: list[Stretch] = []
    for row in table.sort_by("start_ns").to_pylist():
        last = joined[-1] if joined else None
        at = row["start_ns"] - start_ns
        if last and last.phase == row["phase"] and last.start_ns + last.duration_ns == at:
            joined[-1] = Stretch(last.phase, last.start_ns, last.duration_ns + row["duration_ns"])
        elif row["duration_ns"]:
            joined.append(Stretch(row["phase"], at, row["duration_ns"]))
    return tuple(joined) if len(joined) <= MOST_STRETCHES else ()


def _read_collectives(rank: RankRun, step: int, start_ns: int) -> tuple[CollectiveStretch, ...]:
    columns = ("step", "name", "group", "start_ns", "duration_ns", "on_device")
    table = find_sound(rank, "collectives", columns, pc.field("step") == step).sort_by("start_ns")
    return tuple(
        CollectiveStretch(
            row=f"{_name_group(row['group'])}{'' if row['on_device'] else ' (host)'}",
            name=row["name"],
            start_ns=row["start_ns"] - start_ns,
            duration_ns=row["duration_ns"],
        )
        for row in table.slice(0, MOST_STRETCHES).to_pylist()
    )


def _name_group(name: str) -> str:
    """Return the display name of a process group. PyTorch's own names are numbers."""
    return f"group {name}" if name.isdecimal() else name or "default group"


@dataclass(frozen=True)
class DevicePhases:
    """The device's time in each phase per step, as means in ns over the `steps` measured steps, in step order.
    Phases without device time are left out."""

    steps: int
    means_ns: tuple[tuple[str, float], ...]


def summarize_device_phases(rank: RankRun) -> DevicePhases | None:
    """Average the device times of the phases over the steps. None if none was measured, or if the table cannot be read."""
    rows = find_rows(rank, "device_phases", ("step", "phase", "duration_ns"))
    steps = pc.count_distinct(rows["step"]).as_py()
    if not steps:
        return None
    sums = {name: pc.sum(choose(rows, "phase", name)["duration_ns"]).as_py() for name in PHASE_NAMES}
    return DevicePhases(steps, tuple((name, total / steps) for name, total in sums.items() if total))
