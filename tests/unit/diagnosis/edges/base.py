"""A healthy run, what bends it one way, and the two sides of a threshold."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np

from profiler_server.diagnosis.measuring import measure_case
from profiler_server.facts.case import Case
from profiler_server.facts.loading import Bottleneck, Readiness
from profiler_server.facts.steps import NamedFunction, Part, Sampled, SampledShare
from tests.support import facts as make
from tests.support.cases import Plant, build_case_run, plan_of
from tests.support.runs import MS

STEPS = 120


@cache
def base() -> Case:
    """A healthy run of 120 equal steps of 64 ms with two workers."""
    plan = replace(plan_of(), steps=STEPS)
    with tempfile.TemporaryDirectory() as folder:
        run = build_case_run(Path(folder) / "run", Plant(plan))
        case = measure_case(run, run.rank(0))
    assert case is not None
    selection, everything = case.steps.selection, np.ones(STEPS, np.bool_)
    case = make.with_steps(case, selection=replace(selection, kept=everything, regular=everything))
    return make.with_durations(case, lambda durations: np.full(len(durations), 64.0 * MS))


def starving(share: float = 0.4, stage: str | None = "read") -> Case:
    """The base, waiting for data for a share of the step, for batches that are late."""
    case = make.with_batches(make.with_wait(base(), share), 100.0 * MS)
    case = make.with_loading(case, bottleneck=Bottleneck(stage, "", "making"), readiness=(Readiness("q", 0.9, 0.0),))
    return make.with_jobs(case, 100.0 * MS, 0.1)


@dataclass(frozen=True)
class Edge:
    """Where a threshold lies, and what it switches: `drive` is false below it and true above it."""

    at: float
    drive: Callable[[float], bool]


def named(share: float = 1.0, is_own_line: bool = False) -> NamedFunction:
    """Return a function that takes this share of the samples of a phase or stage."""
    return NamedFunction("mine", "", "train.py", 41, 80, share, 0.9 * share, share, is_own_line)


def sampled(
    phases: Mapping[tuple[str, ...], Part] | None = None,
    tracebacks: SampledShare | None = None,
) -> Sampled:
    """Return what stacks show; of all that is not given they show nothing."""
    nothing = defaultdict(lambda: Part("", 0, ()), phases or {})
    return Sampled(nothing, {}, tracebacks)


def whole(number: float) -> int:
    """Take a count just below or just above a whole limit."""
    return int(np.floor(number))
