"""The figures of the map on the Ranks page: time, waits, memory and computing rate of each rank over its steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from collector.format.intervals import Floats, Ints
from collector.format.phases import COMMUNICATION, PHASE_PLACES
from collector.format.run import RankRun, Run
from collector.format.schema.errors import RunError
from collector.format.steps import read_integers
from profiler_server.analysis.memory.resources import read_resources, read_scale
from profiler_server.analysis.ranks.ranks import RankSummary
from profiler_server.analysis.ranks.stragglers import measure_waits
from profiler_server.analysis.ranks.together import MOST_STRETCHES, Track, find_size
from profiler_server.derive.derived import derived
from profiler_server.facts.ranks import RankGrid


@dataclass(frozen=True)
class StepValues:
    """A figure of one rank at some of its steps. `value` has one number for each entry of `step`."""

    step: Ints
    value: Floats


def grid_figure(run: Run, ranks: Sequence[RankSummary], shown: Sequence[RankSummary], figure: str) -> RankGrid | None:
    """Return a figure of the shown ranks, by rank and stretch of steps (a cell); None if the figure is unknown for
    these ranks.

    For `own`, `step`, `sample` (time per sample) and phases, a cell has the mean over its steps. For `wait`, it has the
    rank's mean wait for the last rank. For `memory`, `busy` and `flops`, it has the maximum.
    """
    if figure == "wait":
        return _grid_waits(ranks, shown)
    if (read := _SAMPLED.get(figure)) is not None:
        return _grid_samples(run, shown, read)
    found = grid_steps({rank.rank: rank.track for rank in shown}, figure, MOST_STRETCHES)
    return found if np.isfinite(found.values).any() else None


def grid_steps(tracks: Mapping[int, Track], figure: str, columns: int) -> RankGrid:
    """Return the mean of a figure in each cell: a row per rank, and at most `columns` stretches of steps. Ranks without
    steps have empty rows.
    """
    known = [track for track in tracks.values() if len(track.stretch)]
    if not known:
        return RankGrid(tuple(tracks), np.empty(0, np.int64), 1, np.empty((len(tracks), 0)))
    first = min(int(track.stretch[0]) * track.size for track in known)
    last = max(int(track.stretch[-1] + 1) * track.size - 1 for track in known)
    size = max(find_size(first, last, columns), *(track.size for track in known))
    begin = first // size
    values = np.full((len(tracks), last // size - begin + 1), np.nan)
    for row, track in zip(values, tracks.values(), strict=True):
        at = track.stretch * track.size // size - begin
        total, count = _weigh(track, figure)
        counts = np.bincount(at, count, len(row))
        np.divide(np.bincount(at, total, len(row)), counts, out=row, where=counts > 0)
    starts = (begin + np.arange(values.shape[1], dtype=np.int64)) * size
    return RankGrid(tuple(tracks), np.maximum(starts, 1) if size > 1 else starts, size, values)


def _weigh(track: Track, figure: str) -> tuple[Floats, Ints]:
    """Return two values for each stretch of steps: the sum of a figure, and the divisor that gives its mean."""
    whole = track.parts_ns.sum(axis=0)
    if figure == "sample":
        return np.where(track.samples > 0, whole, 0.0), track.samples
    if figure == "step":
        return whole, track.count
    if figure == "own":
        return whole - track.parts_ns[COMMUNICATION], track.count
    return track.parts_ns[PHASE_PLACES[figure]], track.count


def _grid_waits(ranks: Sequence[RankSummary], shown: Sequence[RankSummary]) -> RankGrid | None:
    found = measure_waits(ranks)
    if found is None or found[1].min(initial=0) < 0:
        return None
    numbers, step, waits = found
    size = find_size(int(step.min()), int(step.max()), MOST_STRETCHES)
    begin = int(step.min()) // size
    at = step // size - begin
    counts = np.bincount(at)
    values = np.full((len(shown), len(counts)), np.nan)
    for row, rank in zip(values, shown, strict=True):
        if rank.rank in numbers:
            sums = np.bincount(at, waits[numbers.index(rank.rank)], len(counts))
            np.divide(sums, counts, out=row, where=counts > 0)
    first = (begin + np.arange(len(counts), dtype=np.int64)) * size
    return RankGrid(tuple(rank.rank for rank in shown), first, size, values)


def _grid_samples(run: Run, ranks: Sequence[RankSummary], read: Callable[[RankRun], StepValues]) -> RankGrid | None:
    found = {rank.rank: read(run.read_rank(rank.rank)) for rank in ranks if rank.steps}
    known = [values for values in found.values() if len(values.step)]
    if len(known) < 2:
        return None
    first = min(int(values.step.min()) for values in known)
    last = max(int(values.step.max()) for values in known)
    size = max(1, -(-(last - first + 1) // MOST_STRETCHES))
    count = (last - first) // size + 1
    rows = np.full((len(ranks), count), np.nan)
    for row, rank in zip(rows, ranks, strict=True):
        values = found.get(rank.rank, _NOTHING)
        np.fmax.at(row, (values.step - first) // size, values.value)
    return RankGrid(tuple(rank.rank for rank in ranks), np.arange(count, dtype=np.int64) * size + first, size, rows)


@derived()
def _read_memory(rank: RankRun) -> StepValues:
    return _read_samples(rank, "memory_bytes", "process")


@derived()
def _read_busy(rank: RankRun) -> StepValues:
    return _read_samples(rank, "utilization_frac", "gpu")


def _read_samples(rank: RankRun, metric: str, source: str) -> StepValues:
    """Return the values of a metric by step, from the source with the largest mean; empty if not recorded or not
    readable.

    A value holds until the next sample, because half a second between samples may be many steps.
    """
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
_SAMPLED = {"memory": _read_memory, "busy": _read_busy, "flops": _read_flops}
