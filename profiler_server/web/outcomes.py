"""What became of the advice of an earlier run, for the pages of a later one; each case is noted in the ledger."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from collector.format.run import Run
from collector.format.schema.errors import RunError
from profiler_server.derive.derived import AT_ONCE_SLICES, count_slices, derived
from profiler_server.derive.store import find_store
from profiler_server.store.catalog import Catalog
from profiler_server.store.ledger import Ledger, LedgerEntry, say_track_record

if TYPE_CHECKING:
    from profiler_server.diagnosis.outcome import Outcome


@dataclass(frozen=True)
class OutcomeView:
    """Sentences about the advice of the run `earlier` that was taken, none where none was; `pending` until that is known."""

    earlier: str
    sentences: tuple[str, ...] = ()
    pending: bool = False


class Outcomes:
    """Set runs beside the ones that they try to improve; in the background where a page would wait."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._ledger = Ledger(catalog.base_dir)
        self._judged = derived()(self._judge)

    def peek(self, run_id: str) -> OutcomeView | None:
        """Return what became of the advice of the run before, or that it is being judged; None where there is no such run."""
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

    def say(self, before: Run, after: Run) -> tuple[str, ...]:
        """Return what a later run took of any other's advice, in sentences; none where a run is too large to judge at once."""
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
        """Return what became of the advice of the run before, in sentences, and note it.

        What another machine measured says nothing of a prediction, so that is not noted; nor is a run in which more was
        changed than the advice speaks of.
        """
        from profiler_server.diagnosis.outcome_sentences import say_outcome

        found = self._find(before, after)
        if found is None:
            return ()
        taken = found.judged
        if taken is None or not found.is_alone:
            self._ledger.forget(run_id)
        elif after.state != "recording" and before.manifest.host == after.manifest.host:
            times = (taken.predicted_ns, taken.low_ns, taken.high_ns, found.step.b_ns)
            self._ledger.note(LedgerEntry(run_id, earlier, taken.rule, *times))
        return say_outcome(found)

    def say_track_records(self) -> Mapping[str, str]:
        """Return for each rule of which the ledger knows a case how often it was right here."""
        return {rule: say_track_record(found) for rule, found in self._ledger.summarize().items()}
