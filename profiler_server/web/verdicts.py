"""Diagnoses for the run list and the pages, and outcomes of earlier advice. Both are kept until a file changes."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from collector.format.run import Run
from collector.format.schema.errors import RunError, StepscopeError
from profiler_server.analysis.compare.comparison import Difference, compare_ranks
from profiler_server.derive import derived as limits
from profiler_server.derive.background import Background, note_provisional
from profiler_server.derive.derived import AT_ONCE_SLICES, count_slices, derived, explain_too_large
from profiler_server.derive.stamps import FEW_RANKS
from profiler_server.derive.store import Entry, find_store
from profiler_server.store.catalog import Catalog
from profiler_server.store.headline import RunEntry
from profiler_server.store.ledger import Ledger, LedgerEntry, say_track_record
from profiler_server.web.shell import OutcomeView, Panel

if TYPE_CHECKING:
    from profiler_server.diagnosis.outcome import Outcome


RESTED_S = 30.0
"""Least time between two judgements of a recording run, which changes every second. It holds for the list of runs, and
for the pages of a run with many ranks."""
log = logging.getLogger(__name__)


class Diagnoses:
    """Diagnoses of runs, each made once until a file of the run changes. Those for the list of runs are made in the
    background."""

    def __init__(self) -> None:
        self._list = Background()
        """Separate from the pages' background work: a rank with millions of slices must not hold up the list."""

    def judge(self, run: Run, rank: int) -> Panel:
        """Return the diagnosis of a rank.

        A rank that cannot be judged gets a panel with the reason. A large run gets a pending panel while it is judged
        in the background.
        """
        asked = _judge.ask(run, rank)
        known = _judge.find(asked)
        if known is not None and known.stamp == asked.stamp:
            return known.value
        ranked, ranks = run.read_rank(rank), len(run.ranks)
        slices = count_slices(ranked)
        if slices > limits.MOST_SLICES:
            return Panel(None, explain_too_large(ranked, slices))
        if slices <= limits.AT_ONCE_SLICES and ranks <= FEW_RANKS:
            return _judge.answer(asked)
        if slices <= limits.AT_ONCE_SLICES and known is not None and _is_fresh(known, ranked.state):
            return known.value
        find_store().background.start(asked.key, lambda: _judge.answer(asked))
        much = f"{slices:,} slices" if slices > limits.AT_ONCE_SLICES else f"{ranks:,} ranks"
        return Panel(None, f"{much} are read in the background; what they tell appears here.", True)

    def find(self, entry: RunEntry) -> Panel | None:
        """Return the diagnosis of a run's first rank if it is known, else None.

        A run without ranks, or with so many timeline slices that it is not judged, gets a panel with the reason. The
        diagnosis of a recording run may be `RESTED_S` old.
        """
        if not entry.headline.ranks:
            return Panel(None, "This run has no rank folder.")
        run, rank = Run(entry.path), entry.headline.ranks[0]
        asked = _judge.ask(run, rank)
        known = _judge.find(asked)
        if known is not None and (known.stamp == asked.stamp or _is_fresh(known, entry.state)):
            return known.value
        if count_slices(run.read_rank(rank)) > limits.MOST_SLICES:
            return self.judge(run, rank)
        note_provisional()
        return None

    def peek(self, entry: RunEntry) -> Panel | None:
        """Return the diagnosis of a run's first rank if known; otherwise start making it and return None."""
        found = self.find(entry)
        if found is None:
            asked = _judge.ask(Run(entry.path), entry.headline.ranks[0])
            self._list.start(asked.key, lambda: _judge.answer(asked))
        return found

    def close(self) -> None:
        self._list.drop_waiting()


def _is_fresh(known: Entry[Panel], state: str) -> bool:
    return state == "recording" and known.age_s < RESTED_S


@derived()
def _judge(run: Run, rank: int) -> Panel:
    from profiler_server.diagnosis.judging import diagnose  # the rules pull in what the first page does not need

    try:
        return Panel(diagnose(run, rank))
    except StepscopeError as error:
        return Panel(None, str(error))
    except Exception as error:  # A diagnosis that fails must not take the page down with it.
        log.exception("%s, rank %d cannot be judged", run.path, rank)
        return Panel(None, f"A rule failed: {type(error).__name__}: {error}")


@dataclass(frozen=True)
class Turn:
    """What changed from one run to a later one. `phases` clearly changed, the most changed phase first; `sentences` are
    on lines, code and settings. `failure` is why the two cannot be compared.
    """

    phases: tuple[Difference, ...] = ()
    sentences: tuple[str, ...] = ()
    failure: str = ""


class Outcomes:
    """Outcomes of advice: each compares a run with the earlier run that it tries to improve. A file, the ledger, keeps
    the predicted and the measured step times.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._ledger = Ledger(catalog.base_dir)
        self._judged = derived()(self._judge)
        self._turned = derived()(self._turn)

    def peek(self, run_id: str) -> OutcomeView | None:
        """Return the outcome of the previous run's advice, pending while it is judged. None without a previous run."""
        earlier = self._catalog.find_baseline(run_id)
        if earlier is None:
            return None
        try:
            before, after = self._catalog.open(earlier), self._catalog.open(run_id)
            asked = self._judged.ask(before, after, earlier, run_id)
            known = self._judged.find(asked)
            if known is not None and (known.stamp == asked.stamp or after.state == "recording"):
                return OutcomeView(earlier, known.value)
        except RunError:
            return None
        work = find_store().background.start(asked.key, lambda: self._judged.answer(asked))
        return OutcomeView(earlier, pending=True) if work is not None else None

    def explain(self, before: str, after: str) -> Turn:
        try:
            return self._turned(self._catalog.open(before), self._catalog.open(after))
        except RunError as error:
            return Turn(failure=str(error))

    def _turn(self, before: Run, after: Run) -> Turn:
        clear = [part for part in compare_ranks(before.rank(), after.rank()).phases if part.is_clear]
        return Turn(tuple(sorted(clear, key=lambda part: -abs(part.change_ns))), self.say(before, after))

    def say(self, before: Run, after: Run) -> tuple[str, ...]:
        """Return sentences on the advice of `before` that `after` followed; empty if it followed none, or if a run
        is too large to be judged at once.
        """
        from profiler_server.diagnosis.outcome_sentences import say_outcome  # the rules take long to import

        found = self._find(before, after)
        return () if found is None else say_outcome(found)

    def _find(self, before: Run, after: Run) -> Outcome | None:
        from profiler_server.diagnosis.outcome import find_outcome

        try:
            if max(count_slices(run.rank()) for run in (before, after)) > AT_ONCE_SLICES:
                return None
        except RunError:
            return None
        return find_outcome(before, after)

    def _judge(self, before: Run, after: Run, earlier: str, run_id: str) -> tuple[str, ...]:
        """Return sentences on how the advice of the run `before` turned out in `after`, and record the outcome in the
        ledger. `earlier` and `run_id` are the ids of the two runs.

        The outcome is not recorded if it is no evidence on the prediction: the runs are from different machines, or
        `after` changed more than the advice.
        """
        from profiler_server.diagnosis.outcome_sentences import say_outcome

        found = self._find(before, after)
        if found is None:
            return ()
        taken = found.judged
        if taken is None or not found.is_alone:
            self._ledger.forget(run_id)
        elif after.state != "recording" and before.manifest.host == after.manifest.host:
            times = (taken.predicted_step_ns, taken.predicted_low_ns, taken.predicted_high_ns, found.step.b_ns)
            self._ledger.note(LedgerEntry(run_id, earlier, taken.rule, *times))
        return say_outcome(found)

    def say_trials(self, run_id: str, run: Run, panel: Panel) -> Mapping[str, str]:
        """Return a sentence for each suggestion whose change was tried on the script. The keys are the rules.

        The measurements of the trials are recorded in the ledger, unless the run still records.
        """
        if panel.diagnosis is None:
            return {}
        from profiler_server.diagnosis.tried import find_trials
        from profiler_server.report.brief import measure_step

        trials = find_trials(run, panel.diagnosis.suggestions)
        told = [each for each in panel.diagnosis.suggestions if each.rule in trials]
        for each in told if run.state != "recording" else ():
            if each.predicted_step_ns and each.predicted_low_ns and each.predicted_high_ns:
                times = (each.predicted_step_ns, each.predicted_low_ns, each.predicted_high_ns)
                left_frac = 1.0 - trials[each.rule].gain_frac
                measured_ns = left_frac * (measure_step(run.rank()) or 0.0)
                self._ledger.note(LedgerEntry(f"{run_id} tried {each.rule}", run_id, each.rule, *times, measured_ns))
        return {rule: trial.sentence for rule, trial in trials.items()}

    def say_track_records(self) -> Mapping[str, str]:
        """Return, for each rule with an outcome in the ledger, a sentence on how often its predictions were right."""
        return {rule: say_track_record(found) for rule, found in self._ledger.summarize().items()}
