"""The outcomes of predictions below a base directory: an entry for each run that tests the advice to an earlier run.

The file outlives the runs. A file that cannot be read counts as empty. If the file cannot be written, the entries are
computed again from the runs that users view.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from collector.format.schema.reading import read_small_file
from collector.format.schema.writing import replacing

NAME = ".stepscope-ledger"
MOST_ENTRIES = 5_000
NEAR_FRAC = 0.15
"""The greatest error of a right prediction, as a share of the measured step."""


@dataclass(frozen=True)
class LedgerEntry:
    """A predicted and a measured step time. `run` is the id of the later run, which was measured; `earlier` is the id
    of the run with the advice.
    """

    run: str
    earlier: str
    rule: str
    predicted_ns: float
    low_ns: float
    high_ns: float
    measured_ns: float

    @property
    def error_frac(self) -> float:
        return self.predicted_ns / self.measured_ns - 1.0


@dataclass(frozen=True)
class TrackRecord:
    """The past predictions of one rule. Of `cases` predictions, `near` were wrong by at most 15 %. In `covered` of
    them, the measured step was within the predicted range.
    """

    cases: int
    near: int
    covered: int


class Ledger:
    """The entries of one base directory. Several threads may use one ledger."""

    def __init__(self, base_dir: Path) -> None:
        self._path = base_dir / NAME
        self._lock = threading.Lock()
        self._entries: dict[str, LedgerEntry] | None = None

    def note(self, entry: LedgerEntry) -> None:
        """Keep an entry, and drop an older entry of the same run. An entry whose times are not above 0 is ignored."""
        if not (entry.measured_ns > 0 and entry.predicted_ns > 0):
            return
        with self._lock:
            known = self._read()
            if known.get(entry.run) == entry:
                return
            known.pop(entry.run, None)
            known[entry.run] = entry
            for run in list(known)[:-MOST_ENTRIES]:
                del known[run]
            self._write(known)

    def forget(self, run: str) -> None:
        """Remove the entry of a run, for a run that no longer tests a prediction."""
        with self._lock:
            known = self._read()
            if known.pop(run, None) is not None:
                self._write(known)

    def summarize(self) -> Mapping[str, TrackRecord]:
        with self._lock:
            entries = tuple(self._read().values())
        found: dict[str, TrackRecord] = {}
        for entry in entries:
            before = found.get(entry.rule, TrackRecord(0, 0, 0))
            found[entry.rule] = TrackRecord(
                before.cases + 1,
                before.near + (abs(entry.error_frac) <= NEAR_FRAC),
                before.covered + (entry.low_ns <= entry.measured_ns <= entry.high_ns),
            )
        return found

    def _read(self) -> dict[str, LedgerEntry]:
        if self._entries is None:
            entries: list[LedgerEntry] = []
            with contextlib.suppress(OSError, msgspec.MsgspecError, RecursionError):
                entries = msgspec.json.decode(read_small_file(self._path), type=list[LedgerEntry])
            self._entries = {e.run: e for e in entries[-MOST_ENTRIES:] if e.measured_ns > 0 and e.predicted_ns > 0}
        return self._entries

    def _write(self, entries: Mapping[str, LedgerEntry]) -> None:
        with contextlib.suppress(OSError), replacing(self._path) as file:
            file.write(msgspec.json.encode(list(entries.values())))


def say_track_record(found: TrackRecord) -> str:
    return (
        f"Here its predictions came within 15 % of the measured step in {found.near} of {found.cases} "
        f"case{'' if found.cases == 1 else 's'}; {found.covered} lay in the range that was shown."
    )
