"""One rank waits for its data, and the others wait for it."""

from __future__ import annotations

from profiler_server.diagnosis.limits.facts import LEAST_OF_DELAY, MOST_OF_DELAY
from profiler_server.diagnosis.limits.ranks import RANK_LOADER_FRAC
from profiler_server.diagnosis.what_if import mend_ranks
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.facts.job import Slow
from profiler_server.facts.results import Evidence
from profiler_server.format import format_duration, format_share


def _judge(case: Case) -> Finding | None:
    verdict = case.ranks.verdict
    if not isinstance(verdict, Slow) or not verdict.comparison.latest.waits_for_data:
        return None
    latest = verdict.comparison.latest
    behind_ns = latest.phase_ns - latest.phase_others_ns
    if behind_ns < RANK_LOADER_FRAC * case.steps.mean_ns:
        return None
    slow = latest.rank
    return Finding(
        title=f"The loader of rank {slow} is slow",
        measured=f"Rank {slow} waits {format_duration(latest.phase_ns)} per step for data, the others "
        f"{format_duration(latest.phase_others_ns)}; it holds them up {format_duration(verdict.gain_ns)} a step "
        f"({format_share(verdict.comparison.share(verdict.gain_ns))}).",
        threshold=f"One rank waits longer for data than the others by {format_share(RANK_LOADER_FRAC)} of the step or more, "
        "and is the slowest for that.",
        advice=f"Look at what rank {slow} reads and where: its part of the data, its disk or mount, the cores that its "
        "workers share with other programs. A suggestion on its own page may say more.",
        change=f"profiler-server report RUN --rank {slow}",
        fix=f"a loader of rank {slow} as fast as the others'",
        evidence=(
            Evidence("data", f"rank={slow}", f"The data pipeline of rank {slow}"),
            Evidence("ranks", "sort=-own", "All ranks side by side"),
        ),
        tier="A",
        what_if=mend_ranks(case, "data_wait" if case.manifest.rank == slow else "communication"),
        gain_range=(LEAST_OF_DELAY, MOST_OF_DELAY),
    )


RULES = (Rule("slow_rank_loader", knob="rank_loader", effort="code", judge=_judge),)
