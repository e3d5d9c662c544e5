"""The outcome of advice: what an earlier run suggested, what the later run followed, and whether the step is as
predicted.

A suggestion with settings counts as followed if the later run has those settings and the earlier run had not. A
suggestion of other code counts as followed if its rule is now silent, and the step and the work in question are clearly
shorter. A slow rank counts as mended if no rank is slow any more. Evaluation counts as reduced if less of it was
recorded.

A prediction is judged only by the phases that its advice covers. Other changes count neither for nor against the
prediction.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

import pyarrow as pa

from collector.edge import Edge
from collector.format.phases import PHASES
from collector.format.run import RankRun, Run
from collector.format.schema.errors import read_or
from collector.format.schema.manifest import Loader
from collector.format.steps import read_integers
from profiler_server.analysis.compare.comparison import Comparison, Difference, compare_ranks
from profiler_server.analysis.data.stages import summarize_stages
from profiler_server.analysis.ranks.ranks import summarize_ranks
from profiler_server.analysis.what_if.pipelines import judge_run
from profiler_server.diagnosis.judging import diagnose
from profiler_server.diagnosis.limits.compare import STEPS_RATIO
from profiler_server.diagnosis.limits.verdict import LESS_FRAC, OTHER_FRAC
from profiler_server.facts.job import Handover, Slow
from profiler_server.facts.results import Suggestion
from profiler_server.format import format_duration, format_share
from profiler_server.store.ledger import NEAR_FRAC

_ABOUT_ONE_RANK = frozenset({"slow_rank_loader", "fixed_straggler"})
_EVALUATION = "validation_share"
_NAMES = {phase.label: phase.name for phase in PHASES}
_log = logging.getLogger("stepscope")


@dataclass(frozen=True)
class Taken:
    """One suggestion of the earlier run that was followed. Times are ns per mean step."""

    rule: str
    title: str
    predicted_step_ns: float
    predicted_low_ns: float
    predicted_high_ns: float
    shortens: tuple[str, ...] = ()


@dataclass(frozen=True)
class LessEvaluation:
    """Followed advice to evaluate less. Times in ns are for training with evaluation, and for evaluation alone.

    All times are for the step count of the earlier run, with each step as long as in its own run.
    """

    rule: str
    title: str
    before_ns: float
    predicted_ns: float
    measured_ns: float
    evaluation_before_ns: float
    evaluation_ns: float


@dataclass(frozen=True)
class Outcome:
    """The advice of the earlier run that the later run followed. `step` compares the mean step of both runs, `phases`
    its phases.

    `evaluation` and `mended` are advice that promises no step time. `mended` holds titles about a slow rank.
    """

    step: Difference
    taken: tuple[Taken, ...] = ()
    phases: tuple[Difference, ...] = ()
    evaluation: LessEvaluation | None = None
    mended: tuple[str, ...] = ()

    @property
    def judged(self) -> Taken | None:
        """The prediction that the later run can judge; None if several were followed at once, since they cannot be
        separated."""
        return self.taken[0] if len(self.taken) == 1 else None

    @property
    def besides(self) -> tuple[Difference, ...]:
        """The phases that clearly changed although the judged advice does not cover them, the most changed first."""
        return tuple(sorted(self._find_besides(), key=lambda part: -abs(part.change_ns)))

    def _find_besides(self) -> Iterator[Difference]:
        taken = self.judged
        for part in self.phases if taken is not None and taken.shortens else ():
            if part.is_clear and abs(part.change_ns) >= OTHER_FRAC * self.step.b_ns and not _is_spoken(taken, part):
                yield part

    @property
    def is_alone(self) -> bool:
        """Whether no other phase became clearly shorter. If one did, something else was changed as well."""
        return all(part.change_ns > 0 for part in self.besides)

    @property
    def measured_ns(self) -> float:
        """The step to compare with the prediction, without the time that other phases clearly saved.

        Time that other phases clearly added stays in, because it may be a cost of the change.
        """
        if self.is_alone:
            return self.step.b_ns
        longer = [part for part in self.besides if part.change_ns > 0]
        spoken = [part for part in self.phases if _is_spoken(self.judged, part)]
        return self.step.a_ns + sum(part.change_ns for part in (*spoken, *longer))

    @property
    def is_in_range(self) -> bool | None:
        """Whether the measured step lies in the predicted range; None if no single prediction is judged."""
        taken = self.judged
        return None if taken is None else taken.predicted_low_ns <= self.measured_ns <= taken.predicted_high_ns

    @property
    def error_frac(self) -> float | None:
        """Predicted step over measured step, less 1; None if no single prediction is judged."""
        taken = self.judged
        return None if taken is None or self.measured_ns <= 0 else taken.predicted_step_ns / self.measured_ns - 1.0


def _is_spoken(taken: Taken | None, part: Difference) -> bool:
    return taken is not None and _NAMES.get(part.name) in taken.shortens


def judge_outcome(before: Run, after: Run) -> Outcome | None:
    """Compare the advice to the first rank of a run with the measurements of a later run.

    None if no advice was followed, or the runs do not train the same model. Raises as `compare_ranks` and `diagnose`
    do.
    """
    ranks = before.rank(), after.rank()
    compared = compare_ranks(*ranks)
    if any(caution.startswith("different models") for caution in compared.cautions) or not compared.step.b_ns:
        return None
    told = diagnose(before, ranks[0].rank).suggestions
    later = {entry.rule for entry in diagnose(after, ranks[1].rank).suggestions if entry.severity != "info"}
    seen = _Seen(
        later,
        list(_pair_loaders(ranks[0].manifest.loaders, ranks[1].manifest.loaders)),
        _find_shortened(ranks, compared),
        frozenset(_NAMES[part.name] for part in compared.phases if part.is_clear and part.change_ns < 0),
        any(entry.rule in _ABOUT_ONE_RANK for entry in told) and _is_even(before, after),
    )
    followed = [entry for entry in told if seen.shows(entry)]
    taken = tuple(_take(entry) for entry in followed if entry.predicted_step_ns is not None)
    mended = tuple(e.title for e in followed if e.predicted_step_ns is None and e.rule in _ABOUT_ONE_RANK)
    less = [found for entry in told if (found := _judge_evaluation(entry, ranks)) is not None]
    if not (taken or mended or less):
        return None
    return Outcome(compared.step, taken, compared.phases, less[0] if less else None, mended)


@dataclass(frozen=True)
class _Seen:
    """Evidence in the later run: the rules that still fire, its loaders paired with the earlier loaders, the pages that
    show less work, the phases that are clearly shorter, and whether no rank is slow any more."""

    later: Set[str]
    loaders: list[tuple[Loader, Loader]]
    pages: frozenset[str]
    shorter: frozenset[str]
    is_even: bool

    def shows(self, entry: Suggestion) -> bool:
        if entry.rule in _ABOUT_ONE_RANK:
            return self.is_even
        if entry.predicted_step_ns is None:
            return False
        if entry.settings:
            return _is_set(entry.settings, self.loaders)
        touched = not entry.shortens or "data_wait" in entry.shortens or not self.shorter.isdisjoint(entry.shortens)
        return (
            entry.rule not in self.later
            and touched
            and entry.evidence[:1] != ()
            and entry.evidence[0].page in self.pages
        )


def _take(entry: Suggestion) -> Taken:
    assert entry.predicted_step_ns is not None
    assert entry.predicted_low_ns is not None
    assert entry.predicted_high_ns is not None
    times = (entry.predicted_step_ns, entry.predicted_low_ns, entry.predicted_high_ns)
    return Taken(entry.rule, entry.title, *times, entry.shortens)


def _is_even(before: Run, after: Run) -> bool:
    if before.manifest.world_size != after.manifest.world_size or len(after.ranks) < len(before.ranks):
        return False
    verdict = judge_run(after, summarize_ranks(after))
    return verdict.comparison is not None and not isinstance(verdict, (Slow, Handover))


def _judge_evaluation(entry: Suggestion, ranks: tuple[RankRun, RankRun]) -> LessEvaluation | None:
    """Return the effect of less evaluation, per step, if the later run evaluates less and is not much shorter."""
    if entry.rule != _EVALUATION or entry.saved_per_step_frac <= 0.0:
        return None
    (steps, trained_ns, evaluated_ns), (later_steps, _, later_ns) = (_sum_kinds(rank) for rank in ranks)
    if not steps or STEPS_RATIO * later_steps < steps:
        return None
    left_ns = later_ns * steps / later_steps
    if left_ns >= LESS_FRAC * evaluated_ns:
        return None
    before_ns = trained_ns + evaluated_ns
    predicted_ns = before_ns - entry.saved_per_step_frac * trained_ns
    return LessEvaluation(entry.rule, entry.title, before_ns, predicted_ns, trained_ns + left_ns, evaluated_ns, left_ns)


def _sum_kinds(rank: RankRun) -> tuple[int, float, float]:
    """Return the number of training steps, the time of training steps in ns, and the time of evaluation batches in ns."""
    rows = rank.table("steps", ("kind", "duration_ns"))
    kinds = rows["kind"].cast(pa.string()).to_numpy(zero_copy_only=False)
    durations_ns = read_integers(rows, "duration_ns")
    trains = kinds == "train"
    return int(trains.sum()), float(durations_ns[trains].sum()), float(durations_ns[kinds == "eval"].sum())


def find_outcome(before: Run, after: Run) -> Outcome | None:
    """Return the outcome as `judge_outcome` does; None also if a run cannot be read or a rule fails on it."""
    found: list[Outcome | None] = [None]
    with Edge(lambda error: _log.warning("%s is not set beside %s: %r", after.path, before.path, error)):
        found.append(judge_outcome(before, after))
    return found[-1]


def _find_shortened(ranks: tuple[RankRun, RankRun], compared: Comparison) -> frozenset[str]:
    """Return the pages whose work clearly shrank in the later run, if its step is clearly faster. Workers that keep up
    silence the rules about their work, so for the loader the work itself must shrink."""
    if not (compared.step.is_clear and compared.step.change_ns < 0):
        return frozenset()
    works = [_sum_work(rank) for rank in ranks]
    loading = {"data"} if works[1] < LESS_FRAC * works[0] else set()
    others = [part for part in compared.phases if part.name != "Data wait" and part.is_clear and part.change_ns < 0]
    return frozenset(loading | ({"steps", "operators", "device", "memory", "ranks", "timeline"} if others else set()))


def _sum_work(rank: RankRun) -> float:
    return sum(stage.mean_ns for stage in read_or((), summarize_stages, rank))


def _pair_loaders(before: tuple[Loader, ...], after: tuple[Loader, ...]) -> Iterator[tuple[Loader, Loader]]:
    """Pair each loader with the later run's loader of the same data set, in order."""
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
    """Return the outcome of the advice, one sentence for each suggestion that was followed."""
    lines = [] if found.evaluation is None else [_say_evaluation(found.evaluation)]
    lines += [
        f"“{title}”: no rank is slow any more; the step takes {_say_change(found.step)}." for title in found.mended
    ]
    if found.judged is not None:
        lines.append(_say_taken(found, found.judged))
    elif found.taken:
        names = ", ".join(f"“{entry.title}”" for entry in found.taken)
        now = format_duration(found.step.b_ns)
        lines.append(f"Taken at once: {names}. Their gains cannot be told apart; the step is {now} now.")
    return tuple(lines)


def _say_change(part: Difference) -> str:
    return f"{format_duration(part.b_ns)} instead of {format_duration(part.a_ns)}"


def _say_taken(found: Outcome, taken: Taken) -> str:
    low, high = format_duration(taken.predicted_low_ns), format_duration(taken.predicted_high_ns)
    promised = f"predicted {format_duration(taken.predicted_step_ns)}, between {low} and {high}"
    error_frac = found.error_frac or 0.0
    measured = format_duration(found.measured_ns) + ("" if found.is_alone else " without what else became shorter")
    if not found.is_in_range:
        verdict = "faster than the range" if found.measured_ns < taken.predicted_low_ns else "slower than the range"
    elif abs(error_frac) > NEAR_FRAC:
        verdict = "inside the range"
    else:
        verdict = "as predicted"
    return (
        f"“{taken.title}”: {promised}; measured {measured}, {verdict} ({_say_error(error_frac)}).{_say_besides(found)}"
    )


def _say_error(error_frac: float) -> str:
    return f"the prediction was {format_share(abs(error_frac))} too {'long' if error_frac > 0 else 'short'}"


def _say_besides(found: Outcome) -> str:
    shorter = [part for part in found.besides if part.change_ns < 0]
    longer = [part for part in found.besides if part.change_ns > 0]
    said = f" {_list_changes(shorter)} shorter as well, which this advice did not speak of; " if shorter else ""
    said += f"with that the step is {format_duration(found.step.b_ns)}." if shorter else ""
    return said + (f" {_list_changes(longer)} longer, which counts against it here." if longer else "")


def _list_changes(parts: Sequence[Difference]) -> str:
    sizes = [format_duration(abs(part.change_ns)) for part in parts]
    named = [f"{part.name} {'is ' if part is parts[0] else ''}{size}" for part, size in zip(parts, sizes, strict=True)]
    return " and ".join([", ".join(named[:-1]), named[-1]] if len(named) > 1 else named)


def _say_evaluation(found: LessEvaluation) -> str:
    error_frac = found.predicted_ns / found.measured_ns - 1.0
    verdict = "as predicted" if abs(error_frac) <= NEAR_FRAC else "otherwise than predicted"
    return (
        f"“{found.title}”: predicted {format_duration(found.predicted_ns)} for training and evaluation together instead of "
        f"{format_duration(found.before_ns)}; measured {format_duration(found.measured_ns)} with steps as long as before, "
        f"{verdict} ({_say_error(error_frac)}): evaluation takes {format_duration(found.evaluation_ns)} instead of "
        f"{format_duration(found.evaluation_before_ns)}."
    )
