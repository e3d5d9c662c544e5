"""The first epoch read from the storage, later ones from memory."""

from __future__ import annotations

from profiler_server.diagnosis.limits import CAPPED_NEED, COLD_RATIO, MIN_GAIN_FRAC
from profiler_server.diagnosis.wording import STAGES_PAGE
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.format import format_duration


def _judge(case: Case) -> Finding | None:
    loader, reading = case.loading.loader, case.loading.reading
    if loader is None or reading is None or reading.first_ns is None or reading.later_ns is None:
        return None
    saved_ns = reading.first_ns - reading.later_ns
    need = case.loading.read_need
    waits = need is not None and need < CAPPED_NEED
    # Workers share the time that is lost.
    least_ns = MIN_GAIN_FRAC * case.steps.mean_ns * max(loader.num_workers, 1)
    if reading.first_ns < COLD_RATIO * reading.later_ns or saved_ns < least_ns or not waits:
        return None
    return Finding(
        title="The first epoch read from a cold cache",
        measured=f"Reading a batch took {format_duration(reading.first_ns)} in the first epoch and "
        f"{format_duration(reading.later_ns)} in later ones (medians).",
        threshold=f"At least {COLD_RATIO:g} times as long, waiting rather than computing.",
        advice="Later epochs found the files in memory. Judge the first epoch by itself: a data set that does not fit in "
        "memory, or a machine that was just started, is as slow as that in every epoch.",
        change="cat /path/to/dataset/* > /dev/null  # reads it into memory before training",
        fix="data that lies in memory",
        evidence=(STAGES_PAGE,),
    )


RULE = Rule("cold_cache", knob="cold_cache", effort="flag", judge=_judge)
