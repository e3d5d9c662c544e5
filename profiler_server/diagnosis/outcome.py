"""The outcome of advice: suggestions of an earlier run that a later run followed, whether the step is as predicted, and
the lines and settings that changed.

A suggestion with settings counts as followed if the later run has these settings and the earlier run did not. A
suggestion of other code counts as followed in two cases: its rule finds nothing any more, and the step and the work in
question are clearly shorter; or a line that it names is clearly shorter. Advice on a slow rank counts as followed if no
rank is slow any more, advice on evaluation if the later run evaluates less per step.

A prediction is judged only by the phases that its advice covers. Other changes count neither for nor against it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass

import pyarrow as pa

from collector.edge import attempt
from collector.format.phases import PHASES
from collector.format.run import RankRun, Run
from collector.format.schema.errors import read_or
from collector.format.schema.manifest import Loader
from collector.format.steps import read_integers
from profiler_server.analysis.compare.comparison import Comparison, Difference, compare_ranks
from profiler_server.analysis.data.stages import summarize_stages
from profiler_server.analysis.ranks.ranks import summarize_ranks
from profiler_server.analysis.what_if.pipelines import judge_run
from profiler_server.diagnosis.changes import (
    CodeChange,
    LineChange,
    SettingChange,
    find_code_changes,
    find_line_changes,
    find_setting_changes,
    list_mended,
    pair_loaders,
)
from profiler_server.diagnosis.judging import diagnose
from profiler_server.diagnosis.limits.compare import STEPS_RATIO
from profiler_server.diagnosis.limits.verdict import LESS_FRAC, OTHER_FRAC
from profiler_server.facts.job import Handover, Slow
from profiler_server.facts.results import Suggestion

_ABOUT_ONE_RANK = frozenset({"slow_rank_loader", "fixed_straggler"})
_EVALUATION = "validation_share"
_NAMES = {phase.label: phase.name for phase in PHASES}
_log = logging.getLogger("stepscope")


@dataclass(frozen=True)
class Taken:
    """One suggestion of the earlier run that was followed. Times are for the mean step; `shortens` are phases."""

    rule: str
    title: str
    predicted_step_ns: float
    predicted_low_ns: float
    predicted_high_ns: float
    shortens: tuple[str, ...] = ()


@dataclass(frozen=True)
class LessEvaluation:
    """The outcome of advice to evaluate less. The first three times are for training with evaluation, the others for
    evaluation alone.

    All times are for the step count of the earlier run, and all use the training time of the earlier run.
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
    """The advice of the earlier run that the later run followed, and the changes between the runs. `step` compares the
    mean step of both runs, `phases` its phases.

    `taken` is advice with a predicted step time. `evaluation`, `mended`, `unpredicted` and `silent` are advice without
    one. `mended` has titles about a slow rank. `unpredicted` has titles of advice whose settings are set, or whose line
    takes less time. `silent` has titles of advice whose rule finds nothing in the later, shorter step. If `unpredicted`
    and `silent` have one title together, `least_step_ns` is the least step that this advice gave, else None. `beside`
    has titles of advice with such a bound that was followed together with `taken`.
    """

    step: Difference
    taken: tuple[Taken, ...] = ()
    phases: tuple[Difference, ...] = ()
    evaluation: LessEvaluation | None = None
    mended: tuple[str, ...] = ()
    unpredicted: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()
    lines: tuple[LineChange, ...] = ()
    code: tuple[CodeChange, ...] = ()
    settings: tuple[SettingChange, ...] = ()
    noun: str = "step"
    least_step_ns: float | None = None
    beside: tuple[str, ...] = ()

    @property
    def judged(self) -> Taken | None:
        """The only followed advice with a prediction. None if there are several: their effects cannot be separated."""
        return self.taken[0] if len(self.taken) == 1 and not self.beside else None

    @property
    def besides(self) -> tuple[Difference, ...]:
        """The phases that clearly changed although the judged advice does not cover them, the most changed phase
        first."""
        return tuple(sorted(self._find_besides(), key=lambda part: -abs(part.change_ns)))

    def _find_besides(self) -> Iterator[Difference]:
        taken = self.judged
        for part in self.phases if taken is not None and taken.shortens else ():
            if part.is_clear and abs(part.change_ns) >= OTHER_FRAC * self.step.b_ns and not _is_spoken(taken, part):
                yield part

    @property
    def is_alone(self) -> bool:
        """Whether no phase outside the judged advice became clearly shorter. If one did, something else changed too."""
        return all(part.change_ns > 0 for part in self.besides)

    @property
    def measured_ns(self) -> float:
        """The later step as if phases outside the judged advice had saved nothing. The prediction is compared with it.

        Time that such phases clearly added stays included, because it may be a cost of the change.
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
        """Predicted step divided by measured step, minus 1; None if no single prediction is judged."""
        taken = self.judged
        return None if taken is None or self.measured_ns <= 0 else taken.predicted_step_ns / self.measured_ns - 1.0


def _is_spoken(taken: Taken | None, part: Difference) -> bool:
    return taken is not None and _NAMES.get(part.name) in taken.shortens


def judge_outcome(before: Run, after: Run) -> Outcome | None:
    """Compare a later run with the advice to the first rank of an earlier run, and with its lines, code and settings.

    None if no advice was followed, and no line, code or setting changed. Advice is not judged if the runs train
    different models. Raises as `compare_ranks` and `diagnose` do.
    """
    ranks = before.rank(), after.rank()
    compared = compare_ranks(*ranks)
    if not compared.step.b_ns:
        return None
    earlier, later = (diagnose(run, rank.rank) for run, rank in zip((before, after), ranks, strict=True))
    is_same = not any(caution.startswith("different models") for caution in compared.cautions)
    told = earlier.suggestions if is_same else ()
    pages, workers = _find_shortened(ranks, compared), any(entry.num_workers for entry in ranks[1].manifest.loaders)
    lines = find_line_changes(compared, earlier.lines, later.lines, workers, "data" in pages)
    seen = _Seen(
        {e.rule for e in later.suggestions if e.severity != "info"} | {entry.rule for entry in later.abstained},
        list(pair_loaders(ranks[0].manifest.loaders, ranks[1].manifest.loaders)),
        pages,
        frozenset(_NAMES[part.name] for part in compared.phases if part.is_clear and part.change_ns < 0),
        any(entry.rule in _ABOUT_ONE_RANK for entry in told) and _is_even(before, after),
        list_mended(lines),
    )
    followed = [entry for entry in told if seen.shows(entry)]
    predicted = [entry for entry in followed if entry.predicted_step_ns is not None]
    predicted = predicted or [e for e in told if e.predicted_step_ns is not None and seen.names_line(e)][:1]
    beside = [entry for entry in followed if predicted and entry.least_step_ns is not None and entry.condition]
    others = [e for e in followed if e.predicted_step_ns is None and e.rule not in _ABOUT_ONE_RANK and e not in beside]
    proven = [entry for entry in others if entry.settings or seen.names_line(entry)]
    is_less = compared.step.b_ns < LESS_FRAC * compared.step.a_ns
    silent = [entry for entry in others if is_less and entry not in proven]
    less = [found for entry in told if (found := _judge_evaluation(entry, ranks)) is not None]
    bounds = [entry.least_step_ns for entry in (*proven, *silent)]
    code, settings = find_code_changes(before, after), find_setting_changes(before, after)
    mended = [e for e in followed if e.predicted_step_ns is None and e.rule in _ABOUT_ONE_RANK]
    if not (predicted or less or mended or proven or silent or lines or code or settings):
        return None
    return Outcome(
        compared.step,
        tuple(_take(entry) for entry in predicted),
        compared.phases,
        less[0] if less else None,
        tuple(entry.title for entry in mended),
        tuple(entry.title for entry in proven),
        tuple(entry.title for entry in silent),
        lines,
        code,
        settings,
        compared.noun,
        bounds[0] if len(bounds) == 1 else None,
        tuple(entry.title for entry in beside),
    )


@dataclass(frozen=True)
class _Seen:
    """Evidence from the later run on which advice was followed.

    `later` are the rules that find something or cannot be judged. `loaders` pairs earlier and later loaders. `pages`
    are the pages whose work became clearly less, `shorter` the phases that are clearly shorter, and `lines` the lines
    that take less time. `is_even` is true if no rank is slow any more.
    """

    later: Set[str]
    loaders: list[tuple[Loader, Loader]]
    pages: frozenset[str]
    shorter: frozenset[str]
    is_even: bool
    lines: tuple[str, ...]

    def names_line(self, entry: Suggestion) -> bool:
        text = f"{entry.title} {entry.measured} {entry.advice}"
        return any(re.search(rf"(?<![\w.]){re.escape(name)}(?![\w.])", text) for name in self.lines)

    def shows(self, entry: Suggestion) -> bool:
        if entry.rule in _ABOUT_ONE_RANK:
            return self.is_even
        if entry.rule == _EVALUATION:
            return False
        if entry.settings:
            return _is_set(entry.settings, self.loaders)
        if entry.predicted_step_ns is None and (entry.severity == "info" or self.names_line(entry)):
            return self.names_line(entry)
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
    """Return the effect of less evaluation. None for other advice, if the later run does not evaluate clearly less per
    step, or if it is much shorter."""
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
    """Return the number of training steps, the time of training steps, and the time of evaluation batches in ns."""
    rows = rank.table("steps", ("kind", "duration_ns"))
    kinds = rows["kind"].cast(pa.string()).to_numpy(zero_copy_only=False)
    durations_ns = read_integers(rows, "duration_ns")
    trains = kinds == "train"
    return int(trains.sum()), float(durations_ns[trains].sum()), float(durations_ns[kinds == "eval"].sum())


def find_outcome(before: Run, after: Run) -> Outcome | None:
    """Return the outcome as `judge_outcome` does; None also if a run cannot be read or a rule fails on it."""
    text = "%s is not set beside %s: %r"
    return attempt(
        lambda: judge_outcome(before, after), lambda error: _log.warning(text, after.path, before.path, error)
    )


def _find_shortened(ranks: tuple[RankRun, RankRun], compared: Comparison) -> frozenset[str]:
    """Return the names of the pages whose work clearly shrank in the later run; empty unless its step is clearly
    shorter.

    More workers can hide the loader's work. So the Data page is returned only if the work on a batch shrank.
    """
    if not (compared.step.is_clear and compared.step.change_ns < 0):
        return frozenset()
    works = [_sum_work(rank) for rank in ranks]
    loading = {"data"} if works[1] < LESS_FRAC * works[0] else set()
    others = [part for part in compared.phases if part.name != "Data wait" and part.is_clear and part.change_ns < 0]
    return frozenset(loading | ({"steps", "operators", "device", "memory", "ranks", "timeline"} if others else set()))


def _sum_work(rank: RankRun) -> float:
    return sum(stage.mean_ns for stage in read_or((), summarize_stages, rank))


def _is_set(settings: Mapping[str, int | bool], pairs: list[tuple[Loader, Loader]]) -> bool:
    def has(loader: Loader) -> bool:
        return all(getattr(loader, name, None) == value for name, value in settings.items())

    return any(has(after) and not has(before) for before, after in pairs)
