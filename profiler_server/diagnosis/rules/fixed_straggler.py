"""One rank is slower than the others, which wait for it in their collectives."""

from __future__ import annotations

from dataclasses import replace

from profiler_server.diagnosis.limits import LEAST_OF_DELAY, MOST_OF_DELAY
from profiler_server.diagnosis.named import name_call, spell_function
from profiler_server.diagnosis.what_if import mend_ranks
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.facts.job import BEHIND_FRAC, Straggler
from profiler_server.facts.results import Evidence
from profiler_server.format import format_duration, format_share


def _judge(case: Case) -> Finding | None:
    straggler = case.ranks.straggler
    # Whether a rank is slow is decided in one place: the Ranks page says the very same.
    if case.ranks.world_size < 2 or straggler is None or not straggler.is_slow:
        return None
    if case.ranks.waits_for_one_loader:
        return None  # slow_rank_loader says more
    slow, others = straggler.rank, "the others" if straggler.others > 1 else "the other rank"
    middle = "the median of the others" if straggler.others > 1 else others
    who = "they wait" if straggler.others > 1 else "it waits"
    judged = case.ranks.judgement
    wait = (
        f"whether {who} for it was not seen"
        if judged.is_hidden
        else f"{who} for it, {format_duration(straggler.gain_ns)} a step ({format_share(judged.gain_frac)})"
    )
    found = Finding(
        title=f"Rank {slow} is slower than {others}",
        measured=f"Rank {slow} is behind {middle} by {format_share(straggler.late_frac)} of the step; {wait}. {_say_how_often(straggler)}",
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
    if (culprit := case.ranks.culprit) is not None:
        found = replace(
            found,
            title=f"{found.title}: {name_call(culprit)}",
            advice=f"Most of what it does longer is {spell_function(culprit)}: take it out, do it less often, or give each "
            "rank its part of it.",
        )
    if judged.is_hidden:
        return found
    part = straggler.phase if case.manifest.rank == slow else "communication"
    # That a rank is slow is said also where the gain is smaller than the doubt.
    return replace(found, what_if=mend_ranks(case, part), otherwise=found)


def _say_how_often(straggler: Straggler) -> str:
    if straggler.longest is None:
        return f"It is the last in {format_share(straggler.last_frac)} of the steps."
    last, count = straggler.longest
    return f"It is the last in {last:,} of the {count:,} steps in which the others waited by far the longest."


RULE = Rule("fixed_straggler", knob="straggler", effort="code", judge=_judge)
