"""Diagnoses for the run list and the pages, kept until a file of their run changes."""

from __future__ import annotations

import logging

from collector.format.run import Run
from collector.format.schema.errors import StepscopeError
from profiler_server.derive import derived as limits
from profiler_server.derive.background import Background, note_provisional
from profiler_server.derive.derived import count_slices, derived, explain_too_large
from profiler_server.derive.stamps import FEW_RANKS
from profiler_server.derive.store import Entry, find_store
from profiler_server.store.headline import RunEntry
from profiler_server.web.shell import Panel

RESTED_S = 30.0
"""A run that records changes every second; the list, which follows it, has it judged no more often than this, and so do
the pages of one of very many ranks."""
log = logging.getLogger(__name__)


class Diagnoses:
    """Judge runs at most once per state of their files; in the background where a list needs many."""

    def __init__(self) -> None:
        self._list = Background()
        """Apart from what pages wait for: a rank with millions of slices must not hold up the list."""

    def judge(self, run: Run, rank: int) -> Panel:
        """Return the diagnosis of a rank. A run that cannot be judged gives a panel that says why."""
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
        """Return the diagnosis of a run's first rank if it is known, None where it has to be made.

        That of a run which records may be `RESTED_S` old.
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
        """Return the diagnosis of a run's first rank if it is known; else have it made and return None."""
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
