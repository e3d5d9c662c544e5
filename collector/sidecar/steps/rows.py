"""One row of `steps` while it grows: exclusive stretches of time, counters, and what time outside of any call is."""

from __future__ import annotations

import copy
import dataclasses
import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from collector.format.phases import PHASE_NAMES, PHASE_PLACES
from collector.sidecar.steps.calls import Call

GAP, DATA, H2D, TAIL = (PHASE_PLACES[name] for name in ("gap", "data_wait", "h2d", "tail"))
FORWARD, BACKWARD, OPTIMIZER = (PHASE_PLACES[name] for name in ("forward", "backward", "optimizer"))
COMMUNICATION = PHASE_PLACES["communication"]
UNKNOWN = -1
"""A stretch inside no known call; what stands on both sides of it will say what it was."""
END = -2
"""What follows the last stretch of a row."""
ACTED = -3
"""A stretch between a forward without gradients and the next forward: the loop's own in a row with a backward, as there it
acts on what its model said, and a part of the forward in a row that only infers."""
MOST_STRETCHES = 50_000
"""A row with more of them (inference without a loader) keeps their sums only."""


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
    """Where a fetch begins the row after step `step`: its time, the first word that belongs to it, the first after it."""

    step: int
    without_gradients: int
    time: int
    position: int
    following: int
    loader: int
    queue: int | None


class QueueSample(NamedTuple):
    """`batch` is the one that the request brought, -1 while it is under way."""

    start: int
    loader: int
    word: int
    batch: int = -1


@dataclass(slots=True)
class Counters:
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
    reductions: int = 0
    hidden: int = 0

    def minus(self, earlier: Counters) -> Counters:
        return Counters(*(getattr(self, name) - getattr(earlier, name) for name in _COUNTER_NAMES))

    def __copy__(self) -> Counters:
        return Counters(*_read_counters(self))


_COUNTER_NAMES = tuple(entry.name for entry in dataclasses.fields(Counters))
_read_counters = operator.attrgetter(*_COUNTER_NAMES)


class Moment(NamedTuple):
    """Where the training thread is: `phase` of the innermost open call and of the last one before, UNKNOWN for none.

    `step` is the last complete one, `since` a time of the log, `calls` are the collectives of the open row; `begun` is
    the one that is waited for, else the first that was begun there and not waited for to its end.
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
        """How many collectives the open row has ended."""
        return sum(not call.is_open for call in self.calls)


class Cut(NamedTuple):
    """A place in a row where another row may turn out to have begun; `position` is that of its first word."""

    time: int
    position: int
    stretches: int
    fetches: int
    queues: int
    counters: Counters


class Head(NamedTuple):
    """The start of a forward that may turn out to begin a batch; `root` is the class that was called, if it is known."""

    cut: Cut
    root: int = UNKNOWN


@dataclass
class Row:
    """`position` is the place in the log of the first word of the row. `previous` is the last known phase."""

    start: int
    position: int
    stretches: list[Stretch] = field(default_factory=list)
    counters: Counters = field(default_factory=Counters)
    fetches: list[Fetch] = field(default_factory=list)
    queues: list[QueueSample] = field(default_factory=list)
    previous: int = UNKNOWN
    graphs: int = 0
    """Forwards with gradients since the last backward: what follows one may be its loss."""
    folded: list[int] = field(default_factory=lambda: [0] * len(PHASE_NAMES))
    folded_acted: int = 0
    forward_point: int | None = None
    backward_point: int | None = None
    detailed: bool = False
    probed: bool = False
    cuts: list[Cut] = field(default_factory=list)
    """Where a batch was asked for before it was known what the one before it was for."""
    updates: list[Cut] = field(default_factory=list)
    """Where updates ended."""
    passes: list[Cut] = field(default_factory=list)
    """Where backwards ended."""
    heads: list[Head] = field(default_factory=list)
    """Where models were called, as long as nothing else has happened."""
    calls: list[Call] = field(default_factory=list)
    """Collectives that began in the row."""
    counted: bool = True
    """False where the user says that this batch is none."""
    grouped: bool = False
    """Several batches were fetched as a group, for this step and those that follow."""
    stopped: int | None = None
    """The loader whose epoch ended last in the row."""

    def cut_here(self, time: int, position: int) -> Cut:
        """Describe this moment. The stretch before it never grows any more."""
        return Cut(time, position, len(self.stretches), len(self.fetches), len(self.queues), copy.copy(self.counters))

    def split(self, cut: Cut) -> Row:
        """Keep what lies before the cut, and return the rest."""
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
            probed=self.probed,
            stopped=self.stopped,
        )
        rest.calls = [call for call in self.calls if call.start >= cut.time]
        self.calls = [call for call in self.calls if call.start < cut.time]
        rest.cuts, rest.updates, rest.passes = (
            [_move(later, cut) for later in cuts if later.time > cut.time]
            for cuts in (self.cuts, self.updates, self.passes)
        )
        rest.heads = [Head(_move(head.cut, cut), head.root) for head in self.heads if head.cut.time >= cut.time]
        self.stretches, self.counters = self.stretches[: cut.stretches], cut.counters
        self.fetches, self.queues = self.fetches[: cut.fetches], self.queues[: cut.queues]
        self.forget_cuts()
        return rest

    def forget_cuts(self) -> None:
        """Be split no more: what is remembered is used up, or cannot be trusted."""
        self.cuts, self.updates, self.passes, self.heads = [], [], [], []

    def answer(self, asked: int, batch: int | None) -> None:
        """Note which batch the request of that time brought. One that only found the end is no sample of the queue."""
        if self.queues and self.queues[-1].start == asked:
            sample = self.queues.pop()
            if batch is not None:
                self.queues.append(sample._replace(batch=batch))

    def add(self, phase: int, start: int, end: int) -> None:
        """Append a stretch; it joins the one before if that is of the same phase."""
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
        """Return when the last collective was left, since the start of the row; None without one."""
        ends = (stretch.end - self.start for stretch in reversed(self.stretches) if stretch.phase == COMMUNICATION)
        return next(ends, None)

    def resolve(self, following: int) -> None:
        """Give the unknown stretches at the end to a phase, now that it is known what follows them."""
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
        """Say whether what has passed lies between a forward without gradients and a call that is not about its result."""
        return self.previous == FORWARD and not self.graphs and following in (FORWARD, OPTIMIZER)

    def _settle_acted(self) -> None:
        """Give what follows forwards without gradients to a phase, by whether the row trains."""
        phase = GAP if self.counters.backwards else FORWARD
        self.folded[phase] += self.folded_acted
        self.folded_acted = 0
        for index, (known, start, end) in enumerate(self.stretches):
            if known == ACTED:
                self.stretches[index] = Stretch(phase, start, end)

    def _find_held(self) -> int:
        """Return which stretch may turn out to begin a row: until that is known, what it is depends on it."""
        return self.updates[-1].stretches if self.updates else -1

    def _resolve_held(self) -> None:
        """Give what was held to a phase, by what stands beside it in the row as it is now."""
        for index, (phase, start, end) in enumerate(self.stretches):
            if phase == UNKNOWN:
                before = (known for known, _, _ in reversed(self.stretches[:index]) if known != COMMUNICATION)
                after = (known for known, _, _ in self.stretches[index + 1 :] if known not in (COMMUNICATION, UNKNOWN))
                self.stretches[index] = Stretch(classify(next(before, UNKNOWN), next(after, END)), start, end)

    def settle(self) -> None:
        """Resolve the rest and apply the points that the user named: the row is complete."""
        self._settle_acted()
        self.resolve(END)
        self._resolve_held()
        if self.forward_point is not None:
            self._relabel(FORWARD, H2D, None, self.forward_point)
        if self.backward_point is not None:
            self._relabel(BACKWARD, OPTIMIZER, self.backward_point, None)
        self.stretches = join_neighbours(self.stretches)

    def sums(self) -> list[int]:
        """Return ns per phase."""
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


def _move(later: Cut, cut: Cut) -> Cut:
    return Cut(
        later.time,
        later.position,
        later.stretches - cut.stretches,
        later.fetches - cut.fetches,
        later.queues - cut.queues,
        later.counters.minus(cut.counters),
    )


def classify(previous: int, following: int) -> int:
    """Return the phase of time that is inside no known call, from the calls around it (UNKNOWN: none yet)."""
    if following == END:
        return GAP if previous == UNKNOWN else TAIL
    if following == BACKWARD:
        return FORWARD
    if previous == UNKNOWN:
        return GAP
    if following == DATA:
        return {DATA: H2D, OPTIMIZER: TAIL}.get(previous, GAP)
    if following == FORWARD:
        return {FORWARD: FORWARD, BACKWARD: GAP}.get(previous, H2D)
    return {FORWARD: FORWARD, DATA: H2D}.get(previous, OPTIMIZER)


def join_neighbours(stretches: list[Stretch]) -> list[Stretch]:
    """Make one stretch of adjacent ones of the same phase."""
    joined: list[Stretch] = []
    for stretch in stretches:
        if joined and joined[-1].phase == stretch.phase:
            joined[-1] = Stretch(stretch.phase, joined[-1].start, stretch.end)
        else:
            joined.append(stretch)
    return joined
