"""What each rank held and computed along its steps, for the maps of the Ranks page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from collector.format.intervals import Floats, Ints
from collector.format.run import RankRun, Run
from collector.format.schema.errors import RunError
from collector.format.steps import read_integers
from profiler_server.analysis.memory.resources import read_resources, read_scale
from profiler_server.analysis.ranks.ranks import RankSummary
from profiler_server.analysis.ranks.tracks import RankGrid
from profiler_server.derive.derived import derived


@dataclass(frozen=True)
class StepValues:
    """A figure of one rank at some of its steps."""

    step: Ints
    value: Floats


def grid_memory(run: Run, ranks: Sequence[RankSummary], columns: int) -> RankGrid | None:
    """Return the most resident memory of each training process, None where it was not sampled on several ranks."""
    return _grid(run, ranks, columns, _read_memory)


def grid_busy(run: Run, ranks: Sequence[RankSummary], columns: int) -> RankGrid | None:
    """Return how busy the devices of each rank were when they were sampled, the busiest of several; a share of 1."""
    return _grid(run, ranks, columns, _read_busy)


def grid_flops(run: Run, ranks: Sequence[RankSummary], columns: int) -> RankGrid | None:
    """Return the floating-point operations of the steps in detailed windows, None where they are not known."""
    return _grid(run, ranks, columns, _read_flops)


def _grid(
    run: Run, ranks: Sequence[RankSummary], columns: int, read: Callable[[RankRun], StepValues]
) -> RankGrid | None:
    found = {rank.rank: read(run.read_rank(rank.rank)) for rank in ranks if rank.steps}
    known = [values for values in found.values() if len(values.step)]
    if len(known) < 2:
        return None
    first = min(int(values.step.min()) for values in known)
    last = max(int(values.step.max()) for values in known)
    size = max(1, -(-(last - first + 1) // columns))
    count = (last - first) // size + 1
    rows = np.full((len(ranks), count), np.nan)
    for row, rank in zip(rows, ranks, strict=True):
        if (values := found.get(rank.rank)) is not None and len(values.step):
            np.fmax.at(row, (values.step - first) // size, values.value)
    return RankGrid(tuple(rank.rank for rank in ranks), np.arange(count, dtype=np.int64) * size + first, size, rows)


@derived()
def _read_memory(rank: RankRun) -> StepValues:
    return _read_samples(rank, "memory_bytes", "process")


@derived()
def _read_busy(rank: RankRun) -> StepValues:
    return _read_samples(rank, "utilization_frac", "gpu")


def _read_samples(rank: RankRun, metric: str, source: str) -> StepValues:
    """A sample counts for its step and for those until the next one: half a second may be many steps."""
    try:
        if rank.status("resources").state != "there":
            return _NOTHING
        scale = read_scale(rank)
        series = read_resources(rank, scale).pick(metric, source)
    except RunError:
        return _NOTHING
    if not series or not len(scale.number):
        return _NOTHING
    most = max(series, key=lambda entry: float(entry.value.mean()))
    places = np.searchsorted(most.x, scale.number + 1, side="left") - 1
    known = places >= 0
    return StepValues(scale.number[known], most.value[places[known]])


@derived()
def _read_flops(rank: RankRun) -> StepValues:
    try:
        table = rank.table("operators", ("step", "flops"))
    except RunError:
        return _NOTHING
    table = table.filter(table["step"].is_valid()).filter(table["flops"].filter(table["step"].is_valid()).is_valid())
    if not table.num_rows:
        return _NOTHING
    steps, place = np.unique(read_integers(table, "step"), return_inverse=True)
    return StepValues(steps, np.bincount(place, weights=table["flops"].to_numpy()).astype(np.float64))


_NOTHING = StepValues(np.empty(0, np.int64), np.empty(0))
