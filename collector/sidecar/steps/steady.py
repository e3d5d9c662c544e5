"""Similar steps, processed together to save time: one pass of the state machine serves all steps of a pattern.

Most steps of a training write the same codes in the same order, and differ only in their times. The codes decide which
time belongs to which phase. So a separate machine gets one step of a pattern, with stretches of 1, 2, 4, 8 … ns. The
sum of each phase then shows, bit by bit, which stretches it contains. The steps themselves then need only sums of
columns, which cost far less than feeding their words one by one.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from collector.ring import codes
from collector.ring.packing import unpack_fetch
from collector.ring.words import CODE_SHIFT, NOTHING, PAYLOAD_MASK
from collector.sidecar.steps.machine import StepMachine
from collector.sidecar.steps.row_keeping import Done
from collector.sidecar.steps.rows import FetchStart

Ints = npt.NDArray[np.int64]

LEAST_STEPS = 6
"""Least number of similar steps that are processed together; fewer are not worth the effort."""
MOST_STEPS = 256
"""Most steps that are processed together: one unsound step sends the whole group through the state machine."""
MOST_WORDS = 1 << 16
"""Most words that are processed together, which bounds the memory when the recorder is behind."""
_MOST_TIMES = 40
_MOST_PATTERNS = 64
_SCRATCH_STEPS = 4
_TIMED = (
    codes.FETCH_START, codes.FETCH_END, codes.FORWARD_START, codes.FORWARD_END, codes.BACKWARD_START,
    codes.BACKWARD_END, codes.UPDATE_START, codes.UPDATE_END, codes.ZERO_START, codes.ZERO_END,
    codes.CLOSURE_START, codes.CLOSURE_END,
)  # fmt: skip
_VALUES = (codes.STEP_ENDS_NEXT, codes.LOADER, codes.QUEUE, codes.BATCH, codes.SAMPLES, codes.NO_GRAD)
_ONCE = (codes.STEP_ENDS_NEXT, codes.LOADER, codes.FETCH_START, codes.FETCH_END, codes.BATCH)
_AT_MOST_ONCE = (codes.QUEUE, codes.SAMPLES)
_SKIPPED = (NOTHING << CODE_SHIFT, codes.GC_START, codes.GC_END)
_COLLECTIONS = (codes.GC_START, codes.GC_END)


@dataclass(frozen=True)
class Pattern:
    """The codes of a step in the log, starting with STEP_ENDS_NEXT, and the stretches of time between the codes.

    `timed` are the indexes of the codes with times. `phases` has a row for each stretch and a column for each phase: 1
    if the stretch belongs to the phase.
    """

    codes: tuple[int, ...]
    timed: Ints
    phases: Ints
    example: Done

    def place(self, code: int) -> int:
        return self.codes.index(code)

    def __contains__(self, code: int) -> bool:
        return code in self.codes


@dataclass(frozen=True)
class Steady:
    """Consecutive steps of one pattern, which need not be steady steps of an average. Each array but `labels` has an
    element or a row per step. Times are perf_counter_ns readings.

    `edges` are the starts of the stretches of each step, and the end of the last stretch; `labels` are the phases of
    these stretches, alike in all steps. `phases` has the time of each phase, `fetches` the duration of the fetch,
    `collections` the time of garbage collections, all in ns. `example` is the row of an artificial step of this
    pattern, which gives the counts.
    """

    example: Done
    steps: Ints
    starts: Ints
    ends: Ints
    phases: Ints
    edges: Ints
    labels: Ints
    fetches: Ints
    loaders: Ints
    epochs: Ints
    batches: Ints
    samples: Ints | None
    queues: Ints | None
    collections: Ints
    used: Ints | None
    """Samples of the batches that each step trained on; `samples` are the samples of the batch that it fetched."""

    def __len__(self) -> int:
        return len(self.steps)


class _Words:
    """A section of the log. `kept` are the indexes of words that matter; steps begin at the places `begins` in them."""

    def __init__(self, words: Ints) -> None:
        self.all = words
        kinds = words & ~PAYLOAD_MASK
        self.kept: Ints = np.flatnonzero(~np.isin(kinds, _SKIPPED))
        self.kinds = kinds[self.kept]
        self.payloads = words[self.kept] & PAYLOAD_MASK
        self.begins: Ints = np.flatnonzero(self.kinds == codes.STEP_ENDS_NEXT)
        self.collections: Ints = np.flatnonzero(np.isin(kinds, _COLLECTIONS))

    def find_runs(self) -> Iterator[tuple[tuple[int, ...], int, int]]:
        """Yield the codes of the most frequent pattern, with the first and last step of each of its series."""
        lengths = np.diff(self.begins)
        if len(lengths) <= LEAST_STEPS:
            return
        length = int(np.bincount(lengths).argmax())
        at = self.begins[:-1][lengths == length]
        table = self.kinds[at[:, None] + np.arange(length)]
        kind = table[len(table) // 2]
        alike = np.zeros(len(lengths) + 2, bool)
        alike[1:-1][lengths == length] = (table == kind).all(1)
        changes = np.flatnonzero(alike[1:] != alike[:-1])
        for first, end in zip(changes[::2].tolist(), changes[1::2].tolist(), strict=True):
            for begin in range(first, end - LEAST_STEPS, MOST_STEPS):
                yield tuple(kind.tolist()), begin, min(begin + MOST_STEPS, end) - 1

    def cut(self, pattern: Pattern, first: int, last: int) -> Steady | None:
        """Return the steps from `first` to before `last`; None if a time runs backwards, a step number is missing, a
        batch comes from a queue of the script, or a garbage collection crosses a step's end.
        """
        places = self.begins[first : last + 1, None] + np.arange(len(pattern.codes))
        payloads = self.payloads[places]
        times = payloads[:, pattern.timed]
        edges = np.column_stack((times[:-1], times[1:, 0]))
        lengths = np.diff(edges)
        steps, loaders = payloads[:, pattern.place(codes.STEP_ENDS_NEXT)], payloads[:, pattern.place(codes.LOADER)]
        if (lengths < 0).any() or (np.diff(steps) != 1).any() or (unpack_fetch(loaders)[0] == codes.OWN_QUEUE).any():
            return None
        starts = edges[:, 0]
        collections = self._sum_collections(places[0, 0], places[-1, 0], starts)
        if collections is None:
            return None

        def pick(code: int) -> Ints | None:
            return payloads[:-1, pattern.place(code)] if code in pattern else None

        batches = payloads[:-1, pattern.place(codes.BATCH)]
        fetches = payloads[:-1, pattern.place(codes.FETCH_END)] - starts
        return Steady(
            pattern.example, steps[1:], starts, edges[:, -1], lengths @ pattern.phases, edges,
            pattern.phases.argmax(1), fetches,
            *unpack_fetch(loaders[:-1]), batches, pick(codes.SAMPLES), pick(codes.QUEUE), collections,
            None,
        )  # fmt: skip

    def _sum_collections(self, first: int, last: int, starts: Ints) -> Ints | None:
        """Return ns of garbage collection per step; None if a collection is incomplete or crosses a step's end."""
        low, high = np.searchsorted(self.collections, (self.kept[first], self.kept[last]))
        words = self.all[self.collections[low:high]]
        begin, end = words[::2], words[1::2]
        sums = np.zeros(len(starts), np.int64)
        if len(begin) != len(end) or ((begin & ~PAYLOAD_MASK) != codes.GC_START).any():
            return None
        begin, end = begin & PAYLOAD_MASK, end & PAYLOAD_MASK
        rows = np.searchsorted(starts, begin, "right") - 1
        if (rows < 0).any() or (rows != np.searchsorted(starts, end, "right") - 1).any() or (end < begin).any():
            return None
        np.add.at(sums, rows, end - begin)
        return sums


class SteadyFeed:
    """A feed of words to a state machine. Similar steps are passed to `take` instead, in time order."""

    def __init__(self, machine: StepMachine, take: Callable[[Steady], None]) -> None:
        self._machine = machine
        self._take = take
        self._patterns: dict[tuple[int, ...], Pattern | None] = {}

    def feed(self, words: Ints, may_skip: Callable[[], bool]) -> None:
        """Process further words. The machine gets all words while `may_skip` returns False."""
        for at in range(0, len(words), MOST_WORDS):
            self._feed_piece(words[at : at + MOST_WORDS], may_skip)

    def _feed_piece(self, words: Ints, may_skip: Callable[[], bool]) -> None:
        done = 0
        if may_skip():
            log, origin = _Words(words), self._machine.position
            for kind, first, last in log.find_runs():
                pattern = self._learn(kind)
                if pattern is not None:
                    done = self._skip(log, pattern, (first, last), (origin, done))
        self._machine.feed(words[done:].tolist())

    def _skip(self, log: _Words, pattern: Pattern, run: tuple[int, int], at: tuple[int, int]) -> int:
        """Pass a series of similar steps to `take`, and all words before it to the machine. `run` holds the first and
        last index of the series in `log`.

        The machine gets the steps as well if `log.cut` refuses them, or if they do not follow directly on its last
        step. `at` is the log position of the first word of `log`, and the number of its words that are processed.
        Return the new number of processed words.
        """
        (first, last), (origin, done) = run, at
        machine, fetch = self._machine, pattern.place(codes.FETCH_START)
        begin, end = (int(log.kept[log.begins[step] + fetch]) + 1 for step in run)
        machine.feed(log.all[done:begin].tolist())
        steady = log.cut(pattern, first, last) if machine.is_at_fetch else None
        if steady is None or machine.state.step != int(steady.steps[0]) - 1:
            return begin
        if steady.samples is not None:
            used = machine.count_steady_samples(steady.loaders, steady.epochs, steady.samples)
            steady = dataclasses.replace(steady, used=used)
        self._take(steady)
        payloads = log.payloads[log.begins[last] :].tolist()
        loader = pattern.place(codes.LOADER)
        queue = payloads[pattern.place(codes.QUEUE)] if codes.QUEUE in pattern else None
        machine.skip_to(
            FetchStart(
                step=int(steady.steps[-1]),
                without_gradients=pattern.example.row.counters.no_grad,
                time=payloads[fetch],
                position=origin + int(log.kept[log.begins[last] + loader]),
                following=origin + end,
                loader=payloads[loader],
                queue=queue,
            )
        )
        return end

    def _learn(self, kind: tuple[int, ...]) -> Pattern | None:
        if kind not in self._patterns:
            if len(self._patterns) >= _MOST_PATTERNS:
                self._patterns.clear()
            self._patterns[kind] = learn_pattern(kind)
        return self._patterns[kind]


def learn_pattern(kind: Sequence[int]) -> Pattern | None:
    """Return the pattern of the step whose codes are `kind`; None if the codes alone do not decide the phases."""
    counts = Counter(kind)
    timed = [place for place, code in enumerate(kind) if code in _TIMED]
    if (
        any(code not in _TIMED and code not in _VALUES for code in kind)
        or any(counts[code] != 1 for code in _ONCE)
        or any(counts[code] > 1 for code in _AT_MOST_ONCE)
        or not 1 < len(timed) <= _MOST_TIMES
        or kind[timed[0]] != codes.FETCH_START
    ):
        return None
    rows: list[Done] = []
    machine = StepMachine(rows.append)
    for step in range(_SCRATCH_STEPS):
        machine.feed(_spell_step(kind, step, len(timed)))
    # The first word of all began a row without a step.
    rows = rows[-_SCRATCH_STEPS + 1 :]
    sums = rows[-1].row.sums()
    is_sound = (
        [(row.kind, row.step) for row in rows] == [("train", step) for step in range(2, _SCRATCH_STEPS + 1)]
        and all(row.row.sums() == sums and row.row.counters == rows[0].row.counters for row in rows)
        and sum(sums) == (1 << len(timed)) - 1
    )
    if not is_sound:
        return None
    phases = [[total >> stretch & 1 for total in sums] for stretch in range(len(timed))]
    return Pattern(tuple(kind), np.array(timed), np.array(phases, np.int64), rows[-1])


def _spell_step(kind: Sequence[int], step: int, times: int) -> list[int]:
    words, length, at = [], 1, step * ((1 << times) - 1) + 1
    for code in kind:
        if code in _TIMED:
            words.append(code + at)
            at, length = at + length, length * 2
        else:
            words.append(code + {codes.STEP_ENDS_NEXT: step + 1, codes.LOADER: 1 << 16, codes.BATCH: step}.get(code, 1))
    return words
