"""What the phases and the stages spend their time in, for the report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from collector.format.phases import PHASE_LABELS
from collector.format.run import RankRun
from profiler_server.analysis.stacks.stacks import read_stacks
from profiler_server.facts.steps import NamedFunction
from profiler_server.report.schema import pick
from profiler_server.words.phrases import spell_function, spell_share

_MOST_LINES = 3
_LEAST_FRAC = 0.05
"""What takes less of a phase has no line in the text."""
_PASSIVE = ("wait", "send")


def report_stacks(rank: RankRun) -> dict[str, Any] | None:
    """Return the functions of each phase and of each stage; null where no stacks were sampled."""
    stacks = read_stacks(rank)
    if stacks is None:
        return None
    return {
        "phases": [pick(stacks.phase(name)) for name in stacks.phases],
        "stages": [
            {**pick(stacks.stage(loader, name)), "loader": loader}
            for loader, name in stacks.stages
            if name not in _PASSIVE
        ],
    }


def render_stacks(report: Mapping[str, Any] | None, phase_shares: Mapping[str, str]) -> list[str]:
    """Return a line for each function that takes a good part of a phase or stage; `phase_shares` are those of the step."""
    if report is None:
        return []
    lines = []
    for part in report["phases"]:
        label = PHASE_LABELS.get(part["name"], part["name"])
        whole = phase_shares.get(part["name"], "")
        lines += _render_part(f"{label} ({whole} of the step)" if whole else label, part)
    for part in report["stages"]:
        lines += _render_part("read and transform" if part["name"] == "fetch" else part["name"], part)
    return lines


def _render_part(label: str, part: Mapping[str, Any]) -> list[str]:
    found = [NamedFunction(**entry) for entry in part["functions"]]
    return [
        f"  in {label}: {spell_function(entry)}, {spell_share(entry)}"
        for entry in found[:_MOST_LINES]
        if entry.share_frac >= _LEAST_FRAC
    ]
