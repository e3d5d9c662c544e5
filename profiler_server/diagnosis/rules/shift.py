"""From one step on, and for good, steps take longer."""

from __future__ import annotations

import numpy as np

from collector.format.phases import PHASE_LABELS
from profiler_server.diagnosis.limits import SHIFT_FILLS, SHIFT_FRAC, SHIFT_HELD_FRAC, SHIFT_STEPS
from profiler_server.diagnosis.wording import STEPS_PAGE
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.facts.steps import CHANCE, Ints, read_column
from profiler_server.format import format_duration, format_share


def _judge(case: Case) -> Finding | None:
    regular = np.flatnonzero(case.steps.selection.regular)
    if len(regular) < SHIFT_STEPS:
        return None
    found = case.steps.shift
    if found is None or found.change_frac < SHIFT_FRAC or found.held_frac < SHIFT_HELD_FRAC:
        return None
    before, after = regular[: found.at], regular[found.at :]
    if found.at < SHIFT_FILLS * _count_ahead(case) or _takes_other_batches(case, before, after):
        return None
    growth = case.steps.find_growth(before, after)
    phase = max(growth, key=lambda name: growth[name])
    since = int(case.steps.selection.step[after[0]])
    return Finding(
        title=f"Steps take longer since step {since:,}",
        measured=f"Since step {since:,} the usual {case.steps.noun} takes {format_duration(found.after_ns)} instead of "
        f"{format_duration(found.before_ns)} (+{format_share(found.change_frac)}), most of it in "
        f"{PHASE_LABELS[phase].lower()}.",
        threshold=f"It grows by {format_share(SHIFT_FRAC)} or more and stays so, at one step rather than steadily; of "
        f"{1 / CHANCE:,.0f} runs without a change one would look like it.",
        advice=f"Look for what happened then. {_advise(case, phase)}",
        change="uptime; nvidia-smi -q -d CLOCK,PERFORMANCE  # while it is slow: what else runs, and at which clock",
        fix=f"steps as short as before step {since:,}",
        evidence=(STEPS_PAGE,),
        severity="low",
    )


def _count_ahead(case: Case) -> int:
    """Return how many batches the loader makes ahead."""
    loader = case.loading.loader
    return loader.num_workers * (loader.prefetch_factor or 0) if loader is not None else 0


def _takes_other_batches(case: Case, before: Ints, after: Ints) -> bool:
    """Say whether steps do other work after the change: batches of another size, or another number of them."""
    columns = ("samples", "forwards", "backwards")
    values = (read_column(case.steps.rows, name) for name in columns)
    return any(np.median(counts[before]) != np.median(counts[after]) for counts in values)


def _advise(case: Case, phase: str) -> str:
    if case.host.got_busier:
        return "Other programs used more of the processors at the end of the run than at its start."
    if phase == "communication":
        return "Another rank may have become slow: the Ranks page says which."
    if phase == "data_wait":
        return "Other files, a storage or network that others use since, workers that lost their processors."
    return "A processor or device that got hot and lowered its clock, a program that was started beside the run."


RULE = Rule("shift", knob="shift", effort="code", judge=_judge)
