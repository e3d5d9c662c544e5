"""What became of advice: of what an earlier run was told, what the later one took, and whether the step is as predicted.

A suggestion counts as taken where the later run has the settings that it asked for, and the earlier one had not; one that
asks for other code, where its rule no longer speaks, and both the step and the work that it is about are clearly shorter.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from collector.edge import Edge
from collector.format.run import RankRun, Run
from collector.format.schema.errors import RunError
from collector.format.schema.manifest import Loader
from profiler_server.analysis.compare.comparison import Comparison, Difference, compare_ranks
from profiler_server.analysis.data.pipeline import summarize_stages
from profiler_server.diagnosis.judging import diagnose
from profiler_server.format import format_duration, format_share
from profiler_server.store.ledger import NEAR_FRAC

LESS_FRAC = 0.9
"""Work counts as less where it takes less than this share of what it took."""
_log = logging.getLogger("stepscope")


@dataclass(frozen=True)
class Taken:
    """One suggestion of the earlier run that was followed. Times are ns per mean step."""

    rule: str
    title: str
    predicted_ns: float
    low_ns: float
    high_ns: float


@dataclass(frozen=True)
class Outcome:
    """What the later run took of the earlier one's advice; `step` is the mean step of both."""

    step: Difference
    taken: tuple[Taken, ...]

    @property
    def judged(self) -> Taken | None:
        """The prediction that the later run can judge: of several that were taken at once none is told from the others."""
        return self.taken[0] if len(self.taken) == 1 else None

    @property
    def is_in_range(self) -> bool | None:
        """Say whether the measured step lies in the range that was shown; None where no single prediction is judged."""
        taken = self.judged
        return None if taken is None else taken.low_ns <= self.step.b_ns <= taken.high_ns

    @property
    def error_frac(self) -> float | None:
        """Predicted over measured step, less 1; None where no single prediction is judged."""
        taken = self.judged
        return None if taken is None or not self.step.b_ns else taken.predicted_ns / self.step.b_ns - 1.0


def judge_outcome(before: Run, after: Run) -> Outcome | None:
    """Set the advice given to the first rank of a run beside what a later run measured.

    None where none of it was taken, or the two do not train the same model. Raises as `compare_ranks` and `diagnose` do.
    """
    ranks = before.rank(), after.rank()
    compared = compare_ranks(*ranks)
    if any(caution.startswith("different models") for caution in compared.cautions) or not compared.step.b_ns:
        return None
    later = {entry.rule for entry in diagnose(after, ranks[1].rank).suggestions if entry.severity != "info"}
    changed = list(_pair_loaders(ranks[0].manifest.loaders, ranks[1].manifest.loaders))
    shortened = _find_shortened(ranks, compared)
    taken = [
        Taken(entry.rule, entry.title, entry.predicted_step_ns, entry.predicted_low_ns, entry.predicted_high_ns)
        for entry in diagnose(before, ranks[0].rank).suggestions
        if entry.predicted_step_ns is not None
        and entry.predicted_low_ns is not None
        and entry.predicted_high_ns is not None
        and (
            _is_set(entry.settings, changed)
            if entry.settings
            else entry.rule not in later and entry.evidence and entry.evidence[0].page in shortened
        )
    ]
    return Outcome(compared.step, tuple(taken)) if taken else None


def find_outcome(before: Run, after: Run) -> Outcome | None:
    """Return the outcome as `judge_outcome` does, None also where a run cannot be read, or a rule fails on it."""
    found: list[Outcome | None] = [None]
    with Edge(lambda error: _log.warning("%s is not set beside %s: %r", after.path, before.path, error)):
        found.append(judge_outcome(before, after))
    return found[-1]


def _find_shortened(ranks: tuple[RankRun, RankRun], compared: Comparison) -> frozenset[str]:
    """Return the pages that show work which the later run clearly has less of, where its step is clearly faster.

    Workers that keep up silence the rules about what they do, so of the loader it is the work itself that must be less.
    """
    if not (compared.step.is_clear and compared.step.change_ns < 0):
        return frozenset()
    works = [_sum_work(rank) for rank in ranks]
    loading = {"data"} if works[1] < LESS_FRAC * works[0] else set()
    others = [part for part in compared.phases if part.name != "Data wait" and part.is_clear and part.change_ns < 0]
    return frozenset(loading | ({"steps", "operators", "device", "memory", "ranks", "timeline"} if others else set()))


def _sum_work(rank: RankRun) -> float:
    """Return the work on a batch, ns; 0 where it was not recorded."""
    try:
        return sum(stage.mean_ns for stage in summarize_stages(rank))
    except RunError:
        return 0.0


def _pair_loaders(before: tuple[Loader, ...], after: tuple[Loader, ...]) -> Iterator[tuple[Loader, Loader]]:
    """Pair each loader with the one of the same data set in the later run, in order."""
    left = list(after)
    for loader in before:
        same = next((other for other in left if other.dataset == loader.dataset), None)
        if same is not None:
            left.remove(same)
            yield loader, same


def _is_set(settings: Mapping[str, int | bool], pairs: list[tuple[Loader, Loader]]) -> bool:
    def has(loader: Loader) -> bool:
        return all(getattr(loader, name, None) == value for name, value in settings.items())

    return any(has(after) and not has(before) for before, after in pairs)


def say_outcome(found: Outcome) -> tuple[str, ...]:
    """Return what became of the advice, a sentence for each suggestion that was taken."""
    measured = format_duration(found.step.b_ns)
    if found.judged is None:
        names = ", ".join(f"“{entry.title}”" for entry in found.taken)
        return (f"Taken at once: {names}. Their gains cannot be told apart; the step is {measured} now.",)
    taken, error = found.judged, found.error_frac or 0.0
    promised = f"predicted {format_duration(taken.predicted_ns)}, between {format_duration(taken.low_ns)} and {format_duration(taken.high_ns)}"
    if not found.is_in_range:
        verdict = "faster than the range" if found.step.b_ns < taken.low_ns else "slower than the range"
    else:
        verdict = "as predicted" if abs(error) <= NEAR_FRAC else "inside the range"
    off = f"the prediction was {format_share(abs(error))} too {'long' if error > 0 else 'short'}"
    return (f"“{taken.title}”: {promised}; measured {measured}, {verdict} ({off}).",)


def describe_outcome(found: Outcome | None) -> dict[str, object] | None:
    """Return the outcome as plain data, times in whole ns; None for none."""
    if found is None:
        return None
    return {
        "before_step_ns": round(found.step.a_ns),
        "measured_step_ns": round(found.step.b_ns),
        "taken": [
            {
                "rule": entry.rule,
                "title": entry.title,
                "predicted_step_ns": round(entry.predicted_ns),
                "predicted_low_ns": round(entry.low_ns),
                "predicted_high_ns": round(entry.high_ns),
            }
            for entry in found.taken
        ],
        "is_in_range": found.is_in_range,
        "error_frac": found.error_frac,
    }
