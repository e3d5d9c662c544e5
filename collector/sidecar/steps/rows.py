"""One row of `steps` while it grows: its stretches of time, which do not overlap, its counters, and the choice of a
phase for time outside of any call.
"""

from __future__ import annotations

import copy
import dataclasses
import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from collector.format.phases import (
    BACKWARD,
    COMMUNICATION,
    DATA_WAIT,
    FORWARD,
    GAP,
    H2D,
    OPTIMIZER,
    PHASE_NAMES,
    TAIL,
)
from collector.sidecar.steps.calls import Call

UNKNOWN = -1
"""Phase of a stretch outside of known calls, until the calls on both sides decide its phase."""
END = -2
"""End of the row, given in place of the phase that follows the last stretch."""
ACTED = -3
"""Phase of a stretch between a forward without gradients and the next forward. In a row with a backward, the loop acts
on the model's output there, so the stretch is a gap. In a row of inference it belongs to the forward."""
MOST_STRETCHES = 50_000
"""Most stretches that a row keeps. A row with more (inference without a loader) keeps only their sums."""


class Stretch(NamedTuple):
    phase: int
    start: int
    end: int


class Fetch(NamedTuple):
    loader: int
    epoch: int
    batch: int
    start: int
    duration: int
    samples: int


class FetchStart(NamedTuple):
    """The fetch of a batch, after the end of step `step`, with which a row starts.

    `position` is the log position of the row's first word, `following` the position after the word FETCH_START.
    `loader` and `queue` are the packed values of the words LOADER and QUEUE; `queue` is None without that word.
    """

    step: int
    without_gradients: int
    time: int
    position: int
    following: int
    loader: int
    queue: int | None


class QueueSample(NamedTuple):
    """The depths when a batch was requested, packed in `word`. `batch` is what the request brought, -1 for none yet."""

    start: int
    loader: int
    word: int
    batch: int = -1


@dataclass(slots=True)
class Counters:
    """Counts in one row of `steps`. `stops` are ended epochs of loaders, `no_grad` forwards without gradients, `zeros`
    calls of `zero_grad`, `skipped` updates that a scaler left out. `loader_start`, `gc` and `hidden` are times in ns;
    `gc_called` is the part of `gc` inside of known calls.
    """

    fetches: int = 0
    stops: int = 0
    forwards: int = 0
    no_grad: int = 0
    backwards: int = 0
    updates: int = 0
    zeros: int = 0
    skipped: int = 0
    samples: int = 0
    loader_start: int = 0
    gc: int = 0
    gc_called: int = 0
    reductions: int = 0
    hidden: int = 0

    def minus(self, earlier: Counters) -> Counters:
        return Counters(*(getattr(self, name) - getattr(earlier, name) for name in _COUNTER_NAMES))

    def __copy__(self) -> Counters:
        return Counters(*_read_counters(self))


_COUNTER_NAMES = tuple(entry.name for entry in dataclasses.fields(Counters))
_read_counters = operator.attrgetter(*_COUNTER_NAMES)


class Moment(NamedTuple):
    """The state of the training thread at the end of the log. `phase` is the phase of the innermost open call,
    `previous` the phase of the call before it. UNKNOWN stands for no call.

    `step` is the number of the last complete step. `since` is the last time in the log, or the start of the open
    collective. `calls` are the collectives of the open row. `begun` is the awaited collective, else the first begun
    collective whose wait has not ended.
    """

    step: int
    phase: int
    previous: int
    is_collective: bool
    since: int
    calls: Sequence[Call]
    begun: Call | None

    @property
    def ended(self) -> int:
        return sum(not call.is_open for call in self.calls)


class Cut(NamedTuple):
    """A point at which a row can be split. `position` is the log position of the first word after the cut.
    `stretches`, `fetches` and `queues` are the numbers of entries before the cut, `counters` the counts.
    """

    time: int
    position: int
    stretches: int
    fetches: int
    queues: int
    counters: Counters


class Head(NamedTuple):
    """The start of a forward that may begin a batch of inference. `root` is the number of the module's class."""

    cut: Cut
    root: int = UNKNOWN


@dataclass
class Row:
    """A row that still grows. `position` is the log position of its first word. `previous` is the phase of the last
    call that ended in it. `folded` are the times in ns, by phase, of stretches that were summed and dropped. The two
    points are times at which the user's FP_POINT and BP_POINT were seen, None if they were not.
    """

    start: int
    position: int
    stretches: list[Stretch] = field(default_factory=list)
    counters: Counters = field(default_factory=Counters)
    fetches: list[Fetch] = field(default_factory=list)
    queues: list[QueueSample] = field(default_factory=list)
    previous: int = UNKNOWN
    graphs: int = 0
    """Number of forwards with gradients since the last backward. Time after such a forward may be its loss."""
    folded: list[int] = field(default_factory=lambda: [0] * len(PHASE_NAMES))
    folded_acted: int = 0
    forward_point: int | None = None
    backward_point: int | None = None
    detailed: bool = False
    cuts: list[Cut] = field(default_factory=list)
    """Points at which a batch was requested while the use of the previous batch was unknown."""
    updates: list[Cut] = field(default_factory=list)
    """Points at which updates ended."""
    passes: list[Cut] = field(default_factory=list)
    """Points at which backwards ended."""
    heads: list[Head] = field(default_factory=list)
    """Calls of models, kept while the row holds nothing else."""
    calls: list[Call] = field(default_factory=list)
    """Collectives that began in the row."""
    counted: bool = True
    """False if the user excludes this batch."""
    grouped: bool = False
    """Whether several batches were fetched as a group, for this step and the following steps."""
    stopped: int | None = None
    """The loader whose epoch ended last in the row."""

    def cut_here(self, time: int, position: int) -> Cut:
        """Return a cut at the current time. The stretch before the cut no longer grows."""
        return Cut(time, position, len(self.stretches), len(self.fetches), len(self.queues), copy.copy(self.counters))

    def split(self, cut: Cut) -> Row:
        rest = Row(
            cut.time,
            cut.position,
            self.stretches[cut.stretches :],
            self.counters.minus(cut.counters),
            self.fetches[cut.fetches :],
            self.queues[cut.queues :],
            previous=self.previous,
            graphs=self.graphs,
            detailed=self.detailed,
            stopped=self.stopped,
        )
        rest.calls = [call for call in self.calls if call.start >= cut.time]
        self.calls = [call for call in self.calls if call.start < cut.time]
        rest.cuts, rest.updates, rest.passes = (
            [move(later, cut) for later in cuts if later.time > cut.time]
            for cuts in (self.cuts, self.updates, self.passes)
        )
        rest.heads = [Head(move(head.cut, cut), head.root) for head in self.heads if head.cut.time >= cut.time]
        self.stretches, self.counters = self.stretches[: cut.stretches], cut.counters
        self.fetches, self.queues = self.fetches[: cut.fetches], self.queues[: cut.queues]
        self.forget_cuts()
        return rest

    def find_end_of_call(self, cut: Cut) -> Cut:
        """Return the end of the last call before `cut` as a cut; `cut` itself if the row has no call before it."""
        count = cut.stretches
        while count and self.stretches[count - 1].phase == UNKNOWN:
            count -= 1
        if not 0 < count < cut.stretches:
            return cut
        counters = dataclasses.replace(cut.counters, gc=cut.counters.gc_called)
        return cut._replace(time=self.stretches[count].start, stretches=count, counters=counters)

    def forget_cuts(self) -> None:
        """Forget all cuts, because they are used up or unreliable. The row can then no longer be split."""
        self.cuts, self.updates, self.passes, self.heads = [], [], [], []

    def answer(self, asked: int, batch: int | None) -> None:
        """Note the batch that the request at `asked` brought. None: the epoch ended, its queue sample is dropped."""
        if self.queues and self.queues[-1].start == asked:
            sample = self.queues.pop()
            if batch is not None:
                self.queues.append(sample._replace(batch=batch))

    def add(self, phase: int, start: int, end: int) -> None:
        """Append a stretch, or extend the last stretch if it has the same phase."""
        if end <= start:
            return
        last = self.stretches[-1] if self.stretches else None
        if last is not None and last.phase == phase and last.end == start and not self._is_cut():
            self.stretches[-1] = Stretch(phase, last.start, end)
        else:
            self.stretches.append(Stretch(phase, start, end))
            if len(self.stretches) > MOST_STRETCHES:
                self._fold()

    def _is_cut(self) -> bool:
        count = len(self.stretches)
        if self.heads and self.heads[-1].cut.stretches == count:
            return True
        return any(cuts and cuts[-1].stretches == count for cuts in (self.cuts, self.updates, self.passes))

    def find_communication_end(self) -> int | None:
        """Return the end of the last communication stretch, in ns since the row's start; None without one."""
        ends = (stretch.end - self.start for stretch in reversed(self.stretches) if stretch.phase == COMMUNICATION)
        return next(ends, None)

    def resolve(self, following: int) -> None:
        """Give the unknown stretches at the end a phase, by that of the next call; a collective decides nothing."""
        if following != COMMUNICATION:
            phase = ACTED if self._has_acted(following) else classify(self.previous, following)
            index, held = len(self.stretches) - 1, self._find_held()
            while index >= 0:
                known, start, end = self.stretches[index]
                if known == UNKNOWN and index == held and following != END:
                    return
                if known == UNKNOWN:
                    self.stretches[index] = Stretch(phase, start, end)
                elif known != COMMUNICATION:
                    return
                index -= 1

    def _has_acted(self, following: int) -> bool:
        """Return whether the row's last call was a forward without gradients, and a forward or an update follows it."""
        return self.previous == FORWARD and not self.graphs and following in (FORWARD, OPTIMIZER)

    def _settle_acted(self) -> None:
        """Give time after forwards without gradients a phase: gap in a row with a backward, else forward."""
        phase = GAP if self.counters.backwards else FORWARD
        self.folded[phase] += self.folded_acted
        self.folded_acted = 0
        for index, (known, start, end) in enumerate(self.stretches):
            if known == ACTED:
                self.stretches[index] = Stretch(phase, start, end)

    def _find_held(self) -> int:
        """Return the index of the first stretch after the last update, where a row may begin; -1 without an update."""
        return self.updates[-1].stretches if self.updates else -1

    def _resolve_held(self) -> None:
        """Give a phase to each stretch that is still unknown. The calls on both sides of it in the complete row decide."""
        for index, (phase, start, end) in enumerate(self.stretches):
            if phase == UNKNOWN:
                before = (known for known, _, _ in reversed(self.stretches[:index]) if known != COMMUNICATION)
                after = (known for known, _, _ in self.stretches[index + 1 :] if known not in (COMMUNICATION, UNKNOWN))
                self.stretches[index] = Stretch(classify(next(before, UNKNOWN), next(after, END)), start, end)

    def settle(self) -> None:
        """Complete the row: give a phase to the remaining stretches, and apply the points that the user named."""
        self._settle_acted()
        self.resolve(END)
        self._resolve_held()
        if self.forward_point is not None:
            self._relabel(FORWARD, H2D, None, self.forward_point)
        if self.backward_point is not None:
            self._relabel(BACKWARD, OPTIMIZER, self.backward_point, None)
        self.stretches = join_neighbours(self.stretches)

    def sums(self) -> list[int]:
        """Return the time of each phase in the row in ns, in the order of PHASE_NAMES."""
        sums = list(self.folded)
        for phase, start, end in self.stretches:
            sums[phase] += end - start
        return sums

    def _fold(self) -> None:
        self.forget_cuts()  # they count stretches that are gone
        keep = self.stretches.pop()
        for phase, start, end in self.stretches:
            if phase == ACTED:
                self.folded_acted += end - start
            else:
                self.folded[phase if phase >= 0 else GAP] += end - start
        self.stretches = [keep]

    def _relabel(self, old: int, new: int, after: int | None, before: int | None) -> None:
        pieces: list[Stretch] = []
        for stretch in self.stretches:
            if stretch.phase != old:
                pieces.append(stretch)
                continue
            low = stretch.start if after is None else min(max(after, stretch.start), stretch.end)
            high = stretch.end if before is None else min(max(before, stretch.start), stretch.end)
            cuts = (Stretch(old, stretch.start, low), Stretch(new, low, high), Stretch(old, high, stretch.end))
            pieces.extend(piece for piece in cuts if piece.end > piece.start)
        self.stretches = pieces


def move(later: Cut, cut: Cut) -> Cut:
    return Cut(
        later.time,
        later.position,
        later.stretches - cut.stretches,
        later.fetches - cut.fetches,
        later.queues - cut.queues,
        later.counters.minus(cut.counters),
    )


def classify(previous: int, following: int) -> int:
    """Return the phase of the time between two calls, from their phases: UNKNOWN for no call, END for the row's end."""
    if following == END:
        return GAP if previous == UNKNOWN else TAIL
    if following == BACKWARD:
        return FORWARD
    if previous == UNKNOWN:
        return GAP
    if following == DATA_WAIT:
        return {DATA_WAIT: H2D, OPTIMIZER: TAIL}.get(previous, GAP)
    if following == FORWARD:
        return {FORWARD: FORWARD, BACKWARD: GAP}.get(previous, H2D)
    return {FORWARD: FORWARD, DATA_WAIT: H2D}.get(previous, OPTIMIZER)


def join_neighbours(stretches: list[Stretch]) -> list[Stretch]:
    joined: list[Stretch] = []
    for stretch in stretches:
        if joined and joined[-1].phase == stretch.phase:
            joined[-1] = Stretch(stretch.phase, joined[-1].start, stretch.end)
        else:
            joined.append(stretch)
    return joined
