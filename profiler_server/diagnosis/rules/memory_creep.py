"""The memory of the training process grows for as long as the run goes on."""

from __future__ import annotations

from profiler_server.diagnosis.limits import GROWN_BYTES, GROWN_FRAC
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.facts.results import Abstention, Evidence
from profiler_server.format import format_bytes, format_share

_HOUR_NS = 3_600_000_000_000


def _judge(case: Case) -> Finding | Abstention | None:
    growth = case.host.load.growth if case.host.load is not None else None
    if growth is None:
        return None
    grown = growth.grown_bytes
    if grown < max(GROWN_FRAC * growth.levels_bytes[0], GROWN_BYTES) or not growth.is_steady:
        return None
    per_hour = grown / growth.elapsed_ns * _HOUR_NS
    return Finding(
        title="The memory of the training process keeps growing",
        measured=f"It grew from {format_bytes(growth.levels_bytes[0])} to {format_bytes(growth.levels_bytes[-1])} and in "
        f"every sixth of the run; at this pace it takes {format_bytes(per_hour)} more every hour.",
        threshold=f"At least {format_share(GROWN_FRAC)} and {format_bytes(GROWN_BYTES)} more than after the first fifth of the "
        "run, growing in every sixth of the rest.",
        advice="Something keeps references that it should drop, and the run ends when memory runs out: losses that hold their "
        "graph, outputs that are collected, a log or a cache without a limit.",
        change="losses.append(loss.item())  # not loss itself, which keeps its graph alive",
        fix="memory that stays level",
        evidence=(Evidence("memory", "", "Memory of the processes over the steps"),),
        severity="medium",
    )


RULE = Rule("memory_creep", knob="memory", effort="code", judge=_judge)
