"""The map of ranks and steps: one figure at a time, chosen by a switch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from collector.format.phases import PHASE_LABELS
from collector.format.run import Run
from profiler_server.analysis.ranks.ranks import RankSummary, find_noun
from profiler_server.analysis.ranks.stragglers import measure_waits
from profiler_server.analysis.ranks.tracks import MOST_STRETCHES, RankGrid, find_size, grid_steps
from profiler_server.analysis.ranks.work import grid_busy, grid_flops, grid_memory
from profiler_server.figures import Heat, build_heat
from profiler_server.format import format_bytes, format_duration, format_number_of, format_rate, format_share

COLUMNS = MOST_STRETCHES
Write = Callable[[float], str]


@dataclass(frozen=True)
class Choice:
    """One position of the switch."""

    key: str
    label: str


@dataclass(frozen=True)
class StepMap:
    """A picture of the steps of the shown ranks; `data` is what its cells say when one points at them, -1 for nothing.

    `heat` is None where the chosen figure was not recorded, and the caption says so.
    """

    title: str
    choices: tuple[Choice, ...]
    chosen: str
    heat: Heat | None
    caption: str
    data: dict[str, Any]


@dataclass(frozen=True)
class _Figure:
    """What a position of the switch shows; `is_most` says that a cell of several steps is the most of them."""

    label: str
    what: str
    grid: Callable[[Run, Sequence[RankSummary], Sequence[RankSummary]], RankGrid | None]
    write: Write
    is_most: bool = False


def _by_step(figure: str) -> Callable[[Run, Sequence[RankSummary], Sequence[RankSummary]], RankGrid | None]:
    def grid(run: Run, ranks: Sequence[RankSummary], shown: Sequence[RankSummary]) -> RankGrid | None:
        found = grid_steps({rank.rank: rank.track for rank in shown}, figure, COLUMNS)
        return found if np.isfinite(found.values).any() else None

    return grid


def _by_wait(run: Run, ranks: Sequence[RankSummary], shown: Sequence[RankSummary]) -> RankGrid | None:
    found = measure_waits(ranks)
    if found is None or found[1].min(initial=0) < 0:
        return None
    numbers, step, waits = found
    size = find_size(int(step.min()), int(step.max()), COLUMNS)
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


def _write_per_s(ns_per_sample: float) -> str:
    return f"{1e9 / ns_per_sample:,.4g} samples/s" if ns_per_sample > 0 else "none"


FIGURES: Mapping[str, _Figure] = {
    "own": _Figure("Own work", "Time outside of collectives", _by_step("own"), format_duration),
    "step": _Figure("Step time", "The whole step", _by_step("step"), format_duration),
    "wait": _Figure(
        "Waiting", "How long a rank waits for the one that comes last, by its lateness", _by_wait, format_duration
    ),
    **{
        name: _Figure(label, f"{label} in the step", _by_step(name), format_duration)
        for name, label in PHASE_LABELS.items()
    },
    "sample": _Figure(
        "Throughput",
        "Samples in the time of a step: red is where a sample takes longest",
        _by_step("sample"),
        _write_per_s,
    ),
    "memory": _Figure(
        "Memory",
        "Most resident memory of each training process; a sample is taken every half second",
        lambda run, ranks, shown: grid_memory(run, shown, COLUMNS),
        format_bytes,
        is_most=True,
    ),
    "busy": _Figure(
        "Device busy",
        "How busy the device was when it was sampled, every half second",
        lambda run, ranks, shown: grid_busy(run, shown, COLUMNS),
        format_share,
        is_most=True,
    ),
    "flops": _Figure(
        "FLOPs",
        "Floating-point operations of the steps in detailed windows, by formula from the shapes",
        lambda run, ranks, shown: grid_flops(run, shown, COLUMNS),
        lambda value: format_rate(value, "FLOP"),
        is_most=True,
    ),
}


def build_map(run: Run, ranks: Sequence[RankSummary], shown: Sequence[RankSummary], asked: str) -> StepMap:
    """Build the map of a figure for the shown ranks of all; an unknown figure is own work."""
    chosen = asked if asked in FIGURES else "own"
    figure, noun = FIGURES[chosen], find_noun(ranks)
    choices = tuple(Choice(key, entry.label) for key, entry in FIGURES.items())
    title = f"{figure.label}, {noun} by {noun}"
    grid = figure.grid(run, ranks, shown)
    if grid is None:
        return StepMap(title, choices, chosen, None, f"{figure.what}: not recorded for these ranks.", {})
    heat = build_heat(grid.first, [str(rank) for rank in grid.ranks], grid.values)
    caption = _describe(figure, grid, heat, noun)
    if len(shown) < len(ranks):
        caption += f" Shown are {len(shown):,} of {len(ranks):,} ranks, those of the table below in its order."
    return StepMap(title, choices, chosen, heat, caption, _list_cells(figure, grid, noun))


def _describe(figure: _Figure, grid: RankGrid, heat: Heat, noun: str) -> str:
    several = "the most of" if figure.is_most else "the mean of"
    each = f"{several} {format_number_of(grid.size, noun)}" if grid.size > 1 else f"one {noun}"
    return (
        f"{figure.what}. A cell is {each}: {_describe_scale(figure, heat)}. A red row is a rank that stands out, a red column a {noun} that does "
        "on all ranks, an empty row a rank without figures."
    )


def _describe_scale(figure: _Figure, heat: Heat) -> str:
    low, high, most = (figure.write(value) for value in (heat.low_ns, heat.high_ns, heat.most_ns))
    if heat.beyond:
        held = "1 cell is far beyond that:" if heat.beyond == 1 else f"{heat.beyond:,} cells are far beyond that, up to"
        return f"from {low} (pale) to {high} (red); {held} {most} (violet)"
    if heat.most_ns <= heat.low_ns:
        return f"{most} everywhere"
    if most != high and heat.most_ns > heat.high_ns:
        return f"from {low} (pale) to {high} and more (red), at most {most}"
    return f"from {low} (pale) to {most}"


def _list_cells(figure: _Figure, grid: RankGrid, noun: str) -> dict[str, Any]:
    known = np.isfinite(grid.values)
    rounded = np.where(known, np.round(np.nan_to_num(grid.values), 3 if figure.is_most else 0), -1.0)
    cells = {
        "first": grid.first.tolist(),
        "size": grid.size,
        "ranks": list(grid.ranks),
        "noun": noun,
        "values": (rounded if figure.is_most else rounded.astype(np.int64)).tolist(),
    }
    if figure.write is format_duration:
        return cells
    return {
        **cells,
        "texts": [[figure.write(value) if value >= 0 else "" for value in row] for row in rounded.tolist()],
    }
