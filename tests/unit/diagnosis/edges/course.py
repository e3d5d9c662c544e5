"""Thresholds of the rules on the course of a run: stalls, warm-up, drift, growth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa

from profiler_server.facts.case import Case
from profiler_server.facts.machine import MemoryGrowth
from profiler_server.facts.steps import Held, Interruptions
from tests.support import facts as make
from tests.support.runs import MS
from tests.unit.diagnosis.edges.base import STEPS, Edge, base, whole
from tests.unit.diagnosis.edges.lines import course as grow
from tests.unit.diagnosis.edges.lines import spot, with_lines


def stall(every: int, by_ms: float, count: int = 1000) -> Case:
    def lengthen(durations: np.ndarray) -> np.ndarray:
        durations[every - 1 :: every][:count] += by_ms * MS
        return durations

    return make.with_durations(base(), lengthen)


def stall_at(places: list[int]) -> Case:
    def lengthen(durations: np.ndarray) -> np.ndarray:
        durations[places] += 200.0 * MS
        return durations

    return make.with_durations(base(), lengthen)


def stalls_apart(factor: float) -> Case:
    """A stall in every twelfth step; four of them are so many times as long as the six others."""
    excess = np.array([1, 1, factor, 1, factor, 1, factor, 1, factor, 1]) * 200.0 * MS

    def lengthen(durations: np.ndarray) -> np.ndarray:
        durations[11::12] += excess
        return durations

    return make.with_durations(base(), lengthen)


def drift(growth: float, steps: int = STEPS, falls: int = 0) -> Case:
    """Steps that grow in sixths; `falls` of the sixths in the middle do not grow."""
    levels = np.linspace(1.0, 1.0 + growth, 6)
    levels[1 : 1 + falls] = [1.0 - 0.001 * n for n in range(falls)]
    case = make.with_load(make.with_durations(base(), lambda d: d * levels[np.arange(STEPS) * 6 // STEPS]))
    if steps == STEPS:
        return case
    chosen = np.arange(STEPS) % 2 == 0
    chosen[np.flatnonzero(~chosen)[: steps - int(chosen.sum())]] = True
    chosen[np.flatnonzero(chosen)[steps:]] = False
    return make.with_steps(case, selection=replace(case.steps.selection, regular=chosen))


def _grow_by_line(growth: float) -> Case:
    """Steps that grow, all of it in one line."""
    case = drift(growth)
    grown_ns = growth * case.steps.mean_ns
    return with_lines(spot(course=grow((1e6, 1e6 + grown_ns / 2, 1e6 + grown_ns), 1e3)), case=case)


def shift(growth: float, steps: int = STEPS) -> Case:
    """Steps that become longer at the sixtieth."""
    places = np.arange(STEPS)
    case = make.with_durations(base(), lambda d: d * np.where(places >= STEPS // 2, 1.0 + growth, 1.0))
    chosen = np.abs(places - STEPS // 2 + 0.5) <= steps / 2
    chosen[STEPS // 2 + steps // 2 :] = False
    return make.with_steps(case, selection=replace(case.steps.selection, regular=chosen))


def hold(share: float) -> Case:
    """Ten times as many steps, that become longer in the middle; of the blocks after it only a share stays so."""
    tens, blocks = 10, 40
    case, count = base(), 10 * STEPS
    is_long = np.repeat(np.arange(2 * blocks) >= blocks, count // (2 * blocks))
    short = blocks - whole(blocks * share + 0.01)
    for block in (blocks + np.arange(short) * blocks // max(short, 1) + 2).tolist():
        is_long[block * count // (2 * blocks) :][: count // (2 * blocks)] = False
    durations = np.where(is_long, 96 * MS, 64 * MS).astype(np.int64)
    everything = np.ones(count, np.bool_)
    selection = replace(
        case.steps.selection, step=np.arange(count), duration_ns=durations, regular=everything, kept=everything
    )
    return make.with_steps(case, rows=pa.concat_tables([case.steps.rows] * tens), selection=selection)


def filled(batches: int) -> Case:
    """Steps that become longer at the sixtieth, with a loader that holds so many batches."""
    return make.with_loader(shift(0.4), num_workers=1, prefetch_factor=batches)


def warm(extra_ns: float, whole_ns: float) -> Case:
    """A first step that takes so much longer than the others, in a recording of that length."""
    rest = (whole_ns - extra_ns) / STEPS
    case = make.with_durations(base(), lambda d: np.concatenate([[rest + extra_ns], np.full(STEPS - 1, rest)]))
    case = make.with_steps(case, selection=replace(case.steps.selection, warm_up=np.arange(STEPS) == 0))
    return make.with_loop(case, regular_step_ns=rest)


def saved_stalls(share: float) -> Case:
    """Stalls of 300 ms each, of whose time checkpoints took this share."""
    case = stall(12, 300.0)
    one = np.array([0], np.int64)
    took = np.array([round(share * (STEPS // 12) * 300 * MS)], np.int64)
    return make.with_steps(case, interruptions=Interruptions((Held("checkpoint", "torch.save"),), one, one, took, one))


def growth(levels: tuple[float, ...]) -> Case:
    return make.with_load(base(), growth=MemoryGrowth(levels, 10**9))


EDGES: Mapping[str, Edge] = {
    "STALL_FRAC": Edge(0.05, lambda x: make.speaks(stall(10, 10 * 64 * x / (1 - x)), "periodic_stall")),
    "MIN_STALLS": Edge(3, lambda x: make.speaks(stall(12, 300.0, whole(x)), "periodic_stall")),
    "MOST_STALLS_FRAC": Edge(
        0.34, lambda x: not make.speaks(stall_at([*range(2, 122, 3), 0][: whole(x * STEPS + 0.2)]), "periodic_stall")
    ),
    "ALIKE_FACTOR": Edge(3.0, lambda x: not make.speaks(stalls_apart(x), "periodic_stall")),
    "EVEN_DISTANCE_FRAC": Edge(
        0.2, lambda x: not make.speaks(stall_at([0, 20, 40, 60 + whole(20 * x + 0.999), 80]), "periodic_stall")
    ),
    "EXPLAINED_FRAC": Edge(0.5, lambda x: not make.speaks(saved_stalls(x), "periodic_stall")),
    "WARM_UP_FRAC": Edge(0.10, lambda x: make.speaks(warm(20e9, 20e9 / x), "warm_up")),
    "WARM_UP_NS": Edge(10e9, lambda x: make.speaks(warm(x, 2 * x), "warm_up")),
    "DRIFT_FRAC": Edge(0.15, lambda x: make.speaks(drift(x), "drift")),
    "MUCH_DRIFT_FRAC": Edge(0.5, lambda x: make.find(_grow_by_line(x), "drift").severity == "low"),
    "DRIFT_STEPS": Edge(60, lambda x: make.speaks(drift(0.4, whole(x)), "drift")),
    "DRIFT_RISES": Edge(4, lambda x: make.speaks(drift(0.4, falls=5 - whole(x)), "drift")),
    "SHIFT_FRAC": Edge(0.10, lambda x: make.speaks(shift(x), "shift")),
    "SHIFT_STEPS": Edge(100, lambda x: make.speaks(shift(0.4, whole(x)), "shift")),
    "SHIFT_HELD_FRAC": Edge(0.8, lambda x: make.speaks(hold(x), "shift")),
    "SHIFT_FILLS": Edge(2.0, lambda x: make.speaks(filled(int(np.ceil(60 / x - 1e-6))), "shift")),
    "GROWN_FRAC": Edge(
        0.10, lambda x: make.speaks(growth(tuple(1e9 * (1 + x * n / 5) for n in range(6))), "memory_creep")
    ),
    "GROWN_BYTES": Edge(
        67_108_864, lambda x: make.speaks(growth(tuple(1e8 + x * n / 5 for n in range(6))), "memory_creep")
    ),
}
