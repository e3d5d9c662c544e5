"""One rank is slower than the others, which wait for it in their collectives."""

from __future__ import annotations

from profiler_server.analysis.results import Evidence
from profiler_server.diagnosis.facts import Case
from profiler_server.diagnosis.findings import Finding, Rule
from profiler_server.diagnosis.limits import STRAGGLER_FRAC
from profiler_server.format import format_duration, format_share


def _judge(case: Case) -> Finding | None:
    if case.ranks.world_size < 2 or not case.ranks.peers:
        return None
    communication_ns = case.steps.phases_ns["communication"]
    own = {peer.rank: peer.step_ns - peer.communication_ns for peer in case.ranks.peers}
    own[case.manifest.rank] = case.steps.mean_ns - communication_ns
    slow = max(own, key=lambda rank: own[rank])
    others = sorted(value for rank, value in own.items() if rank != slow)
    behind = own[slow] - others[len(others) // 2]
    if behind < STRAGGLER_FRAC * case.steps.mean_ns:
        return None
    return Finding(
        title=f"Rank {slow} is slower than the others",
        measured=f"Rank {slow} works {format_duration(own[slow])} per step outside of collectives, the others "
        f"{format_duration(others[len(others) // 2])}; they wait for the difference, "
        f"{format_share(behind / case.steps.mean_ns)} of the step.",
        threshold=f"One rank behind the median of the others by more than {format_share(STRAGGLER_FRAC)} of the step.",
        advice=f"Look at rank {slow}: its suggestions and its phases beside those of another rank. Uneven data, a "
        "busy host or a slower device are the usual causes.",
        change=f"profiler-server report RUN --json  # compare ranks[{slow}] with the others",
        fix=f"a rank {slow} as fast as the others",
        evidence=(
            Evidence("ranks", "sort=-own", "All ranks side by side"),
            Evidence("steps", f"rank={slow}", f"Phases of rank {slow}"),
        ),
        severity="medium",
    )


RULE = Rule("fixed_straggler", knob="straggler", effort="code", judge=_judge)
