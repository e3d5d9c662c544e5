"""Checkpoints, seen as `torch.save` or marked by the user, take a noticeable part of the time."""

from __future__ import annotations

import re

from profiler_server.analysis.results import Evidence
from profiler_server.analysis.steps import read_integers
from profiler_server.diagnosis.case import Case, Finding, Rule, shorten_step
from profiler_server.format import format_duration, format_share

_SHARE = 0.05
_NAMES = re.compile(r"check.?point|save", re.IGNORECASE)


def _judge(case: Case) -> Finding | None:
    marked = {name: total for name, total in case.ranges_ns.items() if _NAMES.search(name)}
    if not marked:
        return None
    name = max(marked, key=lambda key: marked[key])
    steps_ns = float(read_integers(case.train, "duration_ns").sum())
    share = marked[name] / steps_ns
    if share < _SHARE:
        return None
    per_step = share * case.step_ns
    return Finding(
        title="Checkpoints hold up training",
        measured=f"The range “{name}” took {format_duration(marked[name])} in all, {format_share(share)} of the steps' time.",
        threshold=f"More than {format_share(_SHARE)} of the time in ranges named after saving.",
        advice="Save less often, or write in another thread while training goes on.",
        change="from torch.distributed.checkpoint import async_save\n\nfuture = async_save(state, checkpoint_id=path)",
        fix="saving in the background",
        evidence=(Evidence("timeline", f"q={name}", "The range on the timeline"),),
        what_if=shorten_step(0.8 * per_step, case.loop.fetches),
        tier="A",
        gain_range=(0.6, 1.25),
    )


RULE = Rule("checkpoint_stall", knob="stalls", effort="code", judge=_judge)
