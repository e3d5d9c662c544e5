"""One rank is slower than the others, which wait for it in their collectives."""

from __future__ import annotations

from dataclasses import replace

from profiler_server.diagnosis.limits.facts import LEAST_OF_DELAY, MOST_OF_DELAY
from profiler_server.diagnosis.what_if import mend_ranks
from profiler_server.diagnosis.wording import name_call, spell_function
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.facts.job import BEHIND_FRAC, Handover, Slow
from profiler_server.facts.results import Evidence
from profiler_server.format import format_duration, format_share


def _judge(case: Case) -> Finding | None:
    verdict = case.ranks.verdict
    # Whether a rank is slow is decided in one place: the Ranks page says the very same.
    if not isinstance(verdict, (Slow, Handover)):
        return None
    latest = verdict.comparison.latest
    if isinstance(verdict, Slow) and latest.waits_for_data:
        return None  # slow_rank_loader says more
    slow, others = latest.rank, "the others" if latest.others > 1 else "the other rank"
    found = Finding(
        title=f"Rank {slow} is slower than {others}",
        measured=_say_late(verdict, "the median of the others" if latest.others > 1 else others),
        threshold=f"One rank is behind the median of the others by {format_share(BEHIND_FRAC)} of the step or more, and by "
        "more than chance and the differences among the others explain.",
        advice=f"Look at rank {slow}: its suggestions and its phases beside those of another rank. Uneven data, a "
        "busy host or a slower device are the usual causes.",
        change=f"profiler-server report RUN --rank {slow}",
        fix=f"a rank {slow} as fast as {others}",
        evidence=(
            Evidence("ranks", "sort=-own", "All ranks side by side"),
            Evidence("steps", f"rank={slow}", f"Phases of rank {slow}"),
        ),
        severity="medium",
        tier="A",
        gain_range=(LEAST_OF_DELAY, MOST_OF_DELAY),
    )
    if isinstance(verdict, Handover):
        both = f"ranks {verdict.before} and {verdict.after}"
        found = replace(found, title=f"{both.capitalize()} hold the job up, one after the other", fix=f"{both} in time")
    elif (culprit := case.ranks.culprit) is not None:
        found = replace(
            found,
            title=f"{found.title}: {name_call(culprit)}",
            advice=f"Most of what it does longer is {spell_function(culprit)}: take it out, do it less often, or give each "
            "rank its part of it.",
        )
    if verdict.comparison.is_hidden:
        return found
    part = latest.phase if case.manifest.rank == slow else "communication"
    # That a rank is slow is said also where the gain is smaller than the doubt.
    return replace(found, what_if=mend_ranks(case, part), otherwise=found)


def _say_late(verdict: Slow | Handover, middle: str) -> str:
    comparison, latest = verdict.comparison, verdict.comparison.latest
    who = "they wait" if latest.others > 1 else "it waits"
    if isinstance(verdict, Handover):
        return (
            f"Before step {verdict.step:,} {who} for rank {verdict.before}, {format_duration(verdict.before_ns)} a step, and "
            f"for rank {verdict.after}, {format_duration(verdict.after_ns)}, from then on."
        )
    wait = (
        f"{who} for it, {format_duration(verdict.gain_ns)} a step ({format_share(comparison.share(verdict.gain_ns))})"
    )
    if comparison.is_hidden:
        wait = f"whether {who} for it was not seen"
    often = f"It is the last in {format_share(comparison.last_frac[latest.rank])} of the steps."
    if verdict.longest is not None:
        last, count = verdict.longest
        often = f"It is the last in {last:,} of the {count:,} steps in which the others waited by far the longest."
    return f"Rank {latest.rank} is behind {middle} by {format_share(latest.late_frac)} of the step; {wait}. {often}"


RULES = (Rule("fixed_straggler", knob="straggler", effort="code", judge=_judge),)
