"""The causes of the time of each phase in the mean step: stages, lines of the user's code, operators, and a rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from profiler_server.diagnosis.limits.facts import EXPLAINED_FRAC
from profiler_server.diagnosis.limits.lines import MOSTLY_FRAC
from profiler_server.facts.case import THREADS, Doing, Hotspot, Lines
from profiler_server.facts.loading import Loading
from profiler_server.facts.steps import Explained, Steps

_CALLED_BY: Mapping[str, Doing] = {
    "data_wait": "loader",
    "h2d": "loader",
    "backward": "backward",
    "optimizer": "update",
}
"""The line of every loop that a phase consists of. That line explains nothing of it."""


def explain_phases(steps: Steps, loadings: Sequence[Loading], lines: Lines | None) -> tuple[Explained, ...]:
    """Return the time by cause of each phase that is a large part of the mean step and whose causes are known. The
    phase with the largest unexplained time comes first.

    `loadings` are the loaders that feed the steps, the longest wait first. `lines` are the lines of the user's code;
    None if unknown.
    """
    found = []
    for phase, whole_ns in steps.phases_ns.items():
        if whole_ns < EXPLAINED_FRAC * steps.mean_ns:
            continue
        spots = [spot for spot in (lines.hotspots if lines is not None else ()) if _find_frac(spot, phase)]
        parts = _explain_wait(loadings, whole_ns) if phase == "data_wait" else {}
        if parts := parts or _explain_work(steps, phase, lines, spots):
            account = Explained(phase, whole_ns, _cut(parts, whole_ns))
            found.append(_name_rest(account, spots, steps.mean_ns))
    return tuple(sorted(found, key=lambda account: -account.rest_ns))


def _explain_wait(loadings: Sequence[Loading], whole_ns: float) -> dict[str, float]:
    loading, *others = loadings
    batches, fetches = loading.batches, loading.loop.fetches
    if loading.loader is None or batches is None:
        return {}
    parts = {other.name: other.mean_wait_ns for other in others}
    if loading.sampler is not None:
        parts["sampler"] = loading.sampler.batch_ns * fetches
    if not loading.loader.num_workers:
        return parts | {stage: float(values.mean()) * fetches for stage, values in batches.stages_ns.items()}
    parts["starts of epochs"] = max(loading.mean_wait_ns - loading.wait_ns, 0.0)
    return parts | {loading.bottleneck.cause: whole_ns}  # the cause that holds workers up has a name


def _explain_work(steps: Steps, phase: str, lines: Lines | None, spots: Sequence[Hotspot]) -> dict[str, float]:
    """Return the ns of a phase by line of the user's code, and in operators that none of these lines calls.

    Empty if nothing is known.
    """
    if lines is None or not spots:
        return {}
    parts: dict[str, float] = {}
    called_ns = 0.0
    for spot in spots:
        if spot.doing != _CALLED_BY.get(phase):
            spent_ns = _find_frac(spot, phase) * steps.mean_ns
            parts[spot.name] = parts.get(spot.name, 0.0) + spent_ns
            called_ns += spent_ns * (spot.work.operator_frac if spot.work is not None else 0.0)
    if operators_ns := steps.operator_fracs.get(phase, 0.0) * steps.phases_ns[phase]:
        parts["operators"] = max(operators_ns - called_ns, 0.0)
    # The phases of the lines with a small share are not stored: all of these lines may run in this phase.
    return parts and parts | {"smaller lines": lines.rest_frac * steps.mean_ns}


def _find_frac(spot: Hotspot, phase: str) -> float:
    """Return the share of the mean step that a line takes of a phase. The wait for data holds the work of threads for
    which the step waits."""
    return spot.phases.get(phase, 0.0) + (spot.phases.get(THREADS, 0.0) if phase == "data_wait" else 0.0)


def _cut(parts: Mapping[str, float], whole_ns: float) -> dict[str, float]:
    """Return the parts in order. A part that would make the sum exceed `whole_ns` is shortened."""
    kept: dict[str, float] = {}
    left_ns = whole_ns
    for name, part_ns in parts.items():
        kept[name] = min(max(part_ns, 0.0), left_ns)
        left_ns -= kept[name]
    return kept


def _name_rest(account: Explained, spots: Sequence[Hotspot], mean_ns: float) -> Explained:
    """Return the account. If most of its unexplained time lies in the line that requests batches, this line and the
    library function that it calls are added.
    """
    spot = next((spot for spot in spots if spot.doing == "loader"), None)
    if spot is None or _find_frac(spot, account.phase) * mean_ns < MOSTLY_FRAC * account.rest_ns:
        return account
    inside = next(iter(spot.inside), "")
    is_made_again = spot.made_frac >= MOSTLY_FRAC * spot.share_frac
    return Explained(account.phase, account.whole_ns, account.parts, inside, spot.place, is_made_again)
