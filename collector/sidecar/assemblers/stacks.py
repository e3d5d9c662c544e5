"""The table `stacks`: the number of samples of each Python stack, by phase or by stage of the data pipeline."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from collector.format.parts import build_table_from_rows
from collector.format.phases import PHASE_NAMES
from collector.format.schema.layout import events_path
from collector.frames.offers import Family, ForeignError, Offers
from collector.frames.posting import AGAINST, BESIDE, TRAINER
from collector.hangs.live import read_threshold_ns
from collector.notes import WORDS_FILE, read_notes
from collector.ring.clock import Clock
from collector.ring.windows import NO_WINDOW, WindowState
from collector.sidecar.assembler import Assembler
from collector.sidecar.source_lines import SourceLines, list_own_places
from collector.sidecar.stack_sampling import Sample, StackBook, StackSampler
from collector.sidecar.steps.row_keeping import Done
from collector.sidecar.steps.steady import Steady

_ROWS_PER_AGE = 50.0
_MOST_STACKS = 400
"""Most stacks whose lines are read from the source files; those with most samples come first."""
_LEAST_JUDGED = 100
"""Least number of samples of the training thread for `misses_lines` to judge: two seconds of training."""
_LONGEST_SUM_S = 300.0
"""Longest time in seconds between two writes of the sums. The usual time is a fiftieth of the recorded time."""


class _Key(NamedTuple):
    replica: int
    loader: int
    kind: str | None
    phase: str | None
    stack: int
    long_row: int = 0
    """Start of a row of `steps` in which the job may have stood still, else 0. No average covers such a row."""
    dense_ns: int = 0
    """Time of a sample in a detailed window, which has a row of its own; else 0."""


class _Sum(NamedTuple):
    first_ns: int
    last_ns: int
    samples: int
    asleep: int | None
    running: int | None


class StacksAssembler(Assembler):
    """The assembler of stacks, which a thread of its own samples from the first `poll` on; offline there is none."""

    def __init__(self, rank_folder: Path, clock: Clock) -> None:
        super().__init__(rank_folder, clock)
        notes = read_notes(rank_folder)
        self._is_wanted = bool(notes.options.get("stacks", False)) and not notes.finished
        self._processors = notes.usable_cores or 1.0
        self._book = StackBook()
        self._source = SourceLines()
        self._in_training: Counter[int] = Counter()
        self._in_windows: Counter[int] = Counter()
        self._beside: Counter[int] = Counter()
        self._own_places: dict[int, tuple[tuple[str, int], ...]] = {}
        self._sampler: StackSampler | None = None
        self._log = events_path(rank_folder) / WORDS_FILE
        self._refusal = ""
        self._has_begun = self._is_over = False
        self._workers: list[Sample] = []
        self._filer = PhaseFiler(self._take_new, read_threshold_ns())
        self._sums: dict[_Key, _Sum] = {}
        self._begun = self._written = time.monotonic()

    def attach(self, log: Path) -> None:
        self._log = log

    def follow(self, trainer: int) -> None:
        if self._is_wanted:
            try:
                offers = Offers(events_path(self.rank_folder), Family(trainer))
            except ForeignError as error:  # it has ended already, or the system does not show it
                self._refusal = f"Stacks cannot be read here: {error}."
                return
            self._sampler = StackSampler(offers, self._book, self._processors, self._find_window())

    def _find_window(self) -> Callable[[], int]:
        try:
            return WindowState(self._log).read
        except (OSError, ValueError):
            return lambda: NO_WINDOW

    def listen(self, others: Mapping[str, Assembler]) -> None:
        """Subscribe to the rows of `steps` as they are made: only then the times of their phases are available."""
        steps: Any = others.get("steps")
        if self._sampler is not None and steps is not None:
            steps.listeners.append(self._filer)

    def poll(self) -> dict[str, pa.Table]:
        if self._sampler is None:
            return {}
        if not self._has_begun:
            self._has_begun = True
            self._sampler.start()
        self._count()
        now = time.monotonic()
        if now - self._written < min((now - self._begun) / _ROWS_PER_AGE, _LONGEST_SUM_S):
            return {}
        self._written = now
        return self._build()

    def finish(self) -> dict[str, pa.Table]:
        if self._sampler is not None:
            self._sampler.stop()
        self._is_over = True
        self._count()
        return self._build()

    def derive(self, table: str, rows: pa.Table) -> dict[str, pa.Table]:
        """Return the remaining rows of `stacks` once the last rows of `steps` have come."""
        if not self._is_over or table != "steps":
            return {}
        self._count()
        return self._build()

    def describe(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if source := self._read_source():
            found["facts"] = {"source_lines": source, "source_sums": self._source.sum_up()}
        if self._sampler is not None and self._sampler.problem:
            reason = (
                f"Reading stacks failed: {self._sampler.problem}. The training and the other tables are not affected."
            )
            return {**found, "signals": [{"name": "stacks", "state": "failed", "reason": reason}]}
        refusal = self._refusal if self._sampler is None else self._sampler.refusal
        if refusal:
            found["signals"] = [{"name": "stacks", "state": "unavailable", "reason": refusal}]
        return found

    def _read_source(self) -> dict[str, dict[str, str]]:
        samples: Counter[tuple[str, int]] = Counter()
        callers: Counter[tuple[str, int]] = Counter()
        for stack, count in (self._in_training + self._beside).most_common(_MOST_STACKS):
            for counts, places in ((samples, self._list_own(stack)[:1]), (callers, self._list_own(stack)[1:])):
                counts.update(dict.fromkeys(places, count))
        return self._source.read(samples, callers)

    def find_newest(self, since_ns: int) -> str:
        """Return the text of the newest stack of the training thread, "" if none was read since `since_ns`."""
        newest = self._filer.find_newest(since_ns)
        return self._book[newest.stack].text if newest is not None else ""

    def misses_lines(self) -> bool:
        """Return whether at least half of the training thread's samples outside of windows lie in lines of the user's
        code without a sample in any window.

        The script may have trained something else in the window, or the window was over before samples were taken.
        False with fewer than `_LEAST_JUDGED` samples.
        """
        usual: Counter[str] = Counter()
        dense: Counter[str] = Counter()
        for counts, samples in ((usual, self._in_training), (dense, self._in_windows)):
            for stack, count in samples.items():
                for file, line in self._list_own(stack)[:1]:
                    counts[f"{file}:{line}"] += count
        unseen = sum(count for place, count in usual.items() if not dense[place])
        return usual.total() >= _LEAST_JUDGED and unseen >= usual.total() / 2

    def _list_own(self, stack: int) -> tuple[tuple[str, int], ...]:
        """Return the lines of the user in a stack, the innermost first."""
        if stack not in self._own_places:
            self._own_places[stack] = tuple(list_own_places(self._book[stack].text))
        return self._own_places[stack]

    def _take_new(self) -> Iterable[Sample]:
        """Return the new samples of the training process. Those of workers go to `_workers`: they need no phase."""
        new = self._sampler.take() if self._sampler is not None else []
        self._workers += [sample for sample in new if sample.replica >= 0]
        return [sample for sample in new if sample.replica < 0]

    def _count(self) -> None:
        self._filer.drain()
        workers, self._workers = self._workers, []
        for sample in workers:
            self._add(Filed(sample, None, None))
        for filed in self._filer.take():
            counts = self._in_windows if filed.sample.is_dense else self._in_training
            (counts if filed.sample.replica == TRAINER else self._beside)[filed.sample.stack] += 1
            self._add(filed)

    def _add(self, filed: Filed) -> None:
        sample = filed.sample
        key = _Key(sample.replica, sample.loader, filed.kind, filed.phase, sample.stack, filed.long_row)
        at = sample.at_ns
        if sample.is_dense:
            key = key._replace(dense_ns=at)
        known = self._sums.get(key, _Sum(at, at, 0, 0, 0))
        asleep = running = None
        if sample.seen is not None and known.asleep is not None and known.running is not None:
            asleep, running = known.asleep + sample.seen.asleep, known.running + sample.seen.running
        self._sums[key] = _Sum(min(known.first_ns, at), max(known.last_ns, at), known.samples + 1, asleep, running)

    def _build(self) -> dict[str, pa.Table]:
        sums, self._sums = self._sums, {}
        rows = [self._spell(key, found) for key, found in sums.items()]
        return {"stacks": build_table_from_rows("stacks", rows)} if rows else {}

    def _spell(self, key: _Key, found: _Sum) -> dict[str, Any]:
        stack = self._book[key.stack]
        thread = {BESIDE: "threads", AGAINST: "beside"}.get(key.replica)
        stage, entry = (thread, stack.begins) if thread else (stack.stage, stack.entry)
        return {
            "replica": key.replica,
            "loader": key.loader if key.loader >= 0 else None,
            "kind": key.kind,
            "phase": key.phase,
            "stage": stage,
            "start_ns": self.clock.to_run(found.first_ns),
            "duration_ns": found.last_ns - found.first_ns,
            "samples": found.samples,
            "asleep": found.asleep,
            "running": found.running,
            "entry": entry,
            "stack": stack.text,
        }


LONG_TIMES = 4
"""A row in which the job may have stood still is at least this many times as long as the row before."""
MOST_WAITING = 20_000
"""Most samples held for a row that is not complete yet; the oldest samples are dropped first."""


class Filed(NamedTuple):
    """A sample, the kind of the row of `steps` in which it was taken, and its phase (None if unknown).

    `long_row` is the start of that row in perf_counter_ns, if the job may have stood still in it; else 0.
    """

    sample: Sample
    kind: str | None
    phase: str | None
    long_row: int = 0


class PhaseFiler:
    """A finder of the phase of each sample.

    `more` returns the new samples. `see_row` and `see_steady` receive the rows of `steps` in time order. `take` returns
    the samples whose row has come.
    """

    def __init__(self, more: Callable[[], Iterable[Sample]], least_ns: int = 0) -> None:
        """A row of `steps` of at least `least_ns` may hold a standstill of the job; 0 or less: no row does."""
        self._more = more
        self._least_ns = least_ns
        self._usual_ns = 0
        self._waiting: deque[Sample] = deque(maxlen=MOST_WAITING)
        self._filed: list[Filed] = []

    def drain(self) -> None:
        self._waiting.extend(self._more())

    def find_newest(self, since_ns: int) -> Sample | None:
        """Return the newest sample that lies in no row of `steps` yet, None without one since `since_ns`."""
        newest = next((sample for sample in reversed(self._waiting) if sample.replica == TRAINER), None)
        return newest if newest is not None and newest.at_ns >= since_ns else None

    def take(self) -> list[Filed]:
        filed, self._filed = self._filed, []
        return filed

    def see_row(self, done: Done) -> None:
        stretches = done.row.stretches
        starts = [stretch.start for stretch in stretches]
        long_row = self._find_long(done.row.start, done.end)
        for sample in self._take_between(done.row.start, done.end):
            at = bisect_right(starts, sample.at_ns) - 1
            is_inside = at >= 0 and sample.at_ns < stretches[at].end
            self._filed.append(
                Filed(sample, done.kind, PHASE_NAMES[stretches[at].phase] if is_inside else None, long_row)
            )

    def see_steady(self, steady: Steady) -> None:
        samples = self._take_between(int(steady.starts[0]), int(steady.ends[-1]))
        if not samples:
            return
        long_rows = [self._find_long(*row) for row in zip(steady.starts.tolist(), steady.ends.tolist(), strict=True)]
        times = np.array([sample.at_ns for sample in samples], np.int64)
        rows = np.searchsorted(steady.starts, times, "right") - 1
        stretches = (steady.edges[rows] <= times[:, None]).sum(1) - 1
        for sample, stretch, row in zip(samples, stretches.tolist(), rows.tolist(), strict=True):
            self._filed.append(Filed(sample, "train", PHASE_NAMES[steady.labels[stretch]], long_rows[row]))

    def _find_long(self, start: int, end: int) -> int:
        """Return `start`, the start of a row, if the row is so long that the job may have stood still in it; else 0."""
        length, usual = end - start, self._usual_ns
        if 0 < self._least_ns <= length and length >= LONG_TIMES * usual:
            return start
        self._usual_ns = length
        return 0

    def _take_between(self, start_ns: int, end_ns: int) -> list[Sample]:
        """Take out and return the samples of one row of `steps`. Earlier samples belong to no row and are dropped."""
        self.drain()
        waiting, found = self._waiting, []
        while waiting and waiting[0].at_ns < end_ns:
            sample = waiting.popleft()
            if sample.at_ns >= start_ns:
                found.append(sample)
        return found


ASSEMBLER = StacksAssembler
