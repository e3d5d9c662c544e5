"""Ranks whose work is laid down step by step, in ms: as they meet, side by side, and as the server reads them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from collector.format.intervals import Floats
from collector.format.phases import COMMUNICATION, PHASE_NAMES
from profiler_server.analysis.ranks.lateness import Lateness, measure_steps
from profiler_server.analysis.ranks.ranks import RankSummary
from profiler_server.analysis.ranks.together import RankSteps, StepsTogether
from profiler_server.facts.job import LateRank, RankComparison
from tests.support.runs import MS

STEP_MS = 100.0
TRANSFER_MS = 2.0


def spread(ranks: int, steps: int, **late_ms: Floats | float) -> Floats:
    """Return what each rank does longer, (ranks, steps): `r3=4.0` is rank 3, in all steps or one by one."""
    found = np.zeros((ranks, steps))
    for name, values in late_ms.items():
        found[int(name[1:])] = values
    return found


def meet(late_ms: Floats) -> Lateness:
    """Let the ranks come so late to the one meeting of each step."""
    own = (STEP_MS + late_ms) * MS
    return measure_steps(tuple(range(len(own))), np.arange(own.shape[1]), own, own.max(axis=0) - own)


def lay(phases_ms: Mapping[str, Floats], collecting_ms: Floats | None = None) -> StepsTogether:
    """Set the phases of the ranks, (ranks, steps), beside each other; in the first of them the rest of a step goes by."""
    shape = next(iter(phases_ms.values())).shape
    nothing = np.zeros(shape)
    parts = np.stack([phases_ms.get(name, nothing) * MS for name in PHASE_NAMES])
    collecting = nothing if collecting_ms is None else collecting_ms * MS
    unknown = np.full(shape, np.nan)
    return StepsTogether(tuple(range(shape[0])), np.arange(shape[1]), parts, collecting, nothing, unknown)


def summarize(late_ms: Floats) -> tuple[RankSummary, ...]:
    """Return ranks that come so late, wait for the last one, and take STEP_MS a step in the mean."""
    held = late_ms.max(axis=0) - late_ms + TRANSFER_MS
    forward = STEP_MS - float((late_ms + held).mean()) + late_ms
    return tuple(_summarize(rank, forward[rank] * MS, held[rank] * MS) for rank in range(len(late_ms)))


def _summarize(rank: int, forward_ns: Floats, held_ns: Floats) -> RankSummary:
    steps = len(held_ns)
    parts = np.zeros((len(PHASE_NAMES), steps), np.float32)
    parts[PHASE_NAMES.index("forward")], parts[COMMUNICATION] = forward_ns, held_ns
    none, unknown = np.zeros(steps, np.float32), np.full(steps, np.nan, np.float32)
    own_ns, step_ns = float(forward_ns.mean()), float((forward_ns + held_ns).mean())
    phases = {name: float(part.mean()) for name, part in zip(PHASE_NAMES, parts, strict=True)}
    together = RankSteps(np.arange(1, steps + 1), parts, none, none, unknown)
    return RankSummary(rank, "", "complete", steps, step_ns, own_ns, 0.0, phases, together=together)


def compare(ranks: int = 2, is_hidden: bool = False) -> RankComparison:
    """Return the comparison of ranks of which the last one is the latest."""
    latest = LateRank(ranks - 1, STEP_MS * MS, STEP_MS * MS, "forward", 0.0, 0.0, ranks - 1)
    everyone = dict.fromkeys(range(ranks), 0.0)
    return RankComparison(latest, "steps", 60, 60, STEP_MS * MS, everyone, everyone, is_hidden=is_hidden)
