"""Steps vary much, and nothing that is recorded explains it (a remark, no advice)."""

from __future__ import annotations

import numpy as np

from profiler_server.diagnosis.limits import JITTER_FRAC, MIN_STEPS, NOISY_FRAC, QUEUED_FRAC
from profiler_server.diagnosis.wording import STEPS_PAGE
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.facts.loading import Floats
from profiler_server.facts.steps import read_column
from profiler_server.format import form_plural, format_duration


def _judge(case: Case) -> Finding | None:
    load = case.host.load
    busy = case.host.others_frac >= NOISY_FRAC or (load is not None and (load.queued_frac or 0.0) >= QUEUED_FRAC)
    own_ns = _read_own(case)
    if busy or case.loading.is_input_bound or len(own_ns) < MIN_STEPS:
        return None
    low, middle, high = np.percentile(own_ns, (10, 50, 90))
    if high - low < JITTER_FRAC * middle:
        return None
    return Finding(
        title=f"{form_plural(case.steps.noun).capitalize()} vary much",
        measured=f"Without waiting for data and without pauses that are known, a {case.steps.noun} takes {format_duration(middle)} "
        f"in the middle, a tenth of them less than {format_duration(low)} and a tenth more than {format_duration(high)}.",
        threshold=f"The tenths lie apart by {JITTER_FRAC:g} times the middle or more, and no other program disturbs.",
        advice="Nothing that is recorded explains it. Batches of unequal size do this, and so does a machine that changes its "
        "clock. Compare runs by many steps.",
        change='with collector.record("this part"):  # around parts of the step, to see which of them varies',
        fix="even steps",
        evidence=(STEPS_PAGE,),
    )


def _read_own(case: Case) -> Floats:
    """Return regular steps without their wait for data and garbage collection, and without those that something held."""
    rows, selection = case.steps.rows, case.steps.selection
    known = read_column(rows, "data_wait_ns") + read_column(rows, "gc_ns")
    held = case.steps.interruptions.of_kind("checkpoint", "validation", "compile", "recompile").start_ns
    starts = read_column(rows, "start_ns")
    ends = starts + selection.duration_ns
    free = np.searchsorted(held, starts) == np.searchsorted(held, ends)
    own_ns: Floats = (selection.duration_ns - known)[selection.regular & free].astype(np.float64)
    return own_ns


RULE = Rule("jitter", knob="jitter", effort="semantics", judge=_judge)
