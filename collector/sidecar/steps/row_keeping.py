"""The start and end of rows of `steps`: the row that still grows (the open row), where it is closed, and where it is
split once the pattern of the training loop is known.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from collector.ring import codes
from collector.sidecar.steps.prefetched import Ahead, Batch, drop_unused, push_early, use_batches
from collector.sidecar.steps.rows import UNKNOWN, Cut, Head, Row, move


@dataclass
class State:
    """The state at the start of the open row, from which another process can continue. `position` is the place in the
    log and `start` the time at which this row begins. `step` is the number of the last ended training step, `started`
    is False during startup, and `explicit` is True once the script itself marks steps.
    """

    step: int = 0
    started: bool = False
    explicit: bool = False
    inferring: bool = False
    """Whether models are called repeatedly without training: each call of the first model begins a batch."""
    detailed: bool = False
    last_without: int = 0
    """The last training step with a forward without gradients, such as that of a teacher; 0 for none."""
    position: int = 1
    start: int | None = None
    ahead: Ahead = ()
    """Batches that were fetched for later steps."""

    def moved(self, position: int, start: int) -> State:
        return replace(self, position=position, start=start)


def encode_state(state: State) -> dict[str, Any]:
    return dict(vars(state))


def decode_state(raw: dict[str, Any]) -> State:
    """Decode a state, without the fields that only another version has."""
    known = {name: value for name, value in raw.items() if name in State.__dataclass_fields__}
    return State(**{**known, "ahead": tuple(Batch(*batch) for batch in raw.get("ahead", ()))})


UPDATES_OF_STEP = 4
"""An iteration of a training loop may have this many updates, each of which counts as a step: of a critic, an actor, …
Forwards without gradients may then belong to only one of these steps."""
MOST_CUTS = 128
"""Most points that an open row remembers, at which the row may be split later."""
SURE_FORWARDS = 8
"""Number of forwards without gradients, before any training, from which each forward counts as a batch of inference."""
MOST_FORWARDS = 256
"""Number of model calls before any training after which the row is split into batches, even if gradients are on. A loss
over more calls is split wrongly."""


class Done(NamedTuple):
    """A complete row. `step` is the number of its training step; in a row of another kind, of the training step before
    it. `end` is its end in perf_counter_ns. `markers` is True if the script itself marks steps or batches.
    """

    row: Row
    kind: str
    step: int
    end: int
    markers: bool


class RowKeeper:
    """A keeper of the open row of `steps`. It decides where the row ends, and passes each closed row to `emit`."""

    def __init__(self, emit: Callable[[Done], None], state: State | None = None) -> None:
        self._emit = emit
        self.state = state or State()
        self.position = self.state.position
        self._row: Row | None = None
        self._at = 0
        if self.state.start is not None:
            self._row = self._open_row(self.state.start, self.position)
            self._at = self.state.start
        self._values_from: int | None = None
        self._loader = (0, 0)
        self._after_stall = False
        self._is_marked = False
        self._usual_fetches: dict[int, int] = {}

    def _open_row(self, time: int, position: int) -> Row:
        return Row(time, position, detailed=self.state.detailed)

    def _start(self, time: int) -> None:
        self.state.started = True
        self._close("startup", time)

    def _close_before_fetch(self, code: int, time: int) -> None:
        """Close the row at the fetch of a batch or the start of a loader, if the row belongs to no training step.

        If it is not known yet whether the row is part of a training step, remember a cut at which the row can be split
        later.
        """
        if not self.state.started:
            self._start(time)
            return
        row, counters = self.row, self.row.counters
        starts = code == codes.LOADER_START
        same = not starts and bool(row.fetches) and row.fetches[-1].loader == self._loader[0]
        if counters.updates:
            return
        if counters.backwards:
            if counters.stops and self.state.step:
                self._close("rest", time)
            elif not row.cuts or row.cuts[-1].counters.backwards < counters.backwards:
                self._remember_cut(time)
        elif counters.forwards:
            if same or starts or counters.stops or counters.no_grad == counters.forwards:
                self._close(self._natural_kind(), time)
        elif counters.fetches:
            if counters.stops:
                self._close("rest", time)
            elif same and not self.state.explicit:
                self._remember_cut(time)
        elif counters.stops or not (counters.loader_start or self.state.explicit or self._after_stall):
            self._close("rest", time)

    def _natural_kind(self) -> str:
        if not self.state.started:
            return "startup"
        counters = self.row.counters
        # A forward with gradients after zero_grad was to be a step, which an exception has ended.
        failed = counters.zeros and counters.no_grad < counters.forwards
        return "eval" if counters.forwards and not (counters.backwards or failed) else "rest"

    def _is_evaluation_without_loader(self) -> bool:
        """Return whether the row has only forwards without gradients, while the last training steps of this run have no
        such forward.
        """
        counters, state = self.row.counters, self.state
        is_usual = state.last_without and state.step - state.last_without < UPDATES_OF_STEP
        if state.explicit or not state.step or is_usual or counters.loader_start:
            return False
        others = counters.fetches + counters.stops + counters.backwards + counters.updates
        return 0 < counters.forwards == counters.no_grad and not others

    def _remember_cut(self, time: int) -> None:
        row = self.row
        row.cuts.append(row.cut_here(time, self._values_from or self.position))
        if len(row.cuts) > MOST_CUTS:
            if row.counters.backwards:
                del row.cuts[0]
            else:
                self._close_head(row.cuts[MOST_CUTS // 2], "rest")

    def _close_head(self, cut: Cut, kind: str, step: int | None = None) -> None:
        """Make the part of the row before the cut a row of its own; the rest becomes the open row. `step` is the number
        of the closed step, None for a row without a step.
        """
        row = self.row
        rest = row.split(cut)
        if not rest.stretches:
            rest.previous = UNKNOWN
        rest.detailed = self.state.detailed
        self._finish_row(row, kind, cut.time, step, rest)

    def _close_at_update(self, step: int) -> None:
        row = self.row
        if row.updates:
            cut = row.updates[-1]
            row.grouped = cut.counters.fetches > max(cut.counters.backwards, 1)
            self._close_head(cut, "train", step)
        else:
            self._close("train", self._at, step)

    def _split_at_last(self, last: int, name: str) -> None:
        """Split the row at its last cuts, so that the part before each cut is a training step, up to step `last`.
        `name` is the row's list of cuts: "cuts" or "passes".
        """
        while self.state.step < last and (cuts := getattr(self.row, name)):
            self._close_head(cuts[max(len(cuts) - (last - self.state.step), 0)], "train", self.state.step + 1)

    def _split_at_updates(self, last: int) -> None:
        while self.state.step < last and self.row.updates:
            updates, steps = self.row.updates, last - self.state.step
            per_step = max(len(updates) // steps, 1)
            at = max(len(updates) - (steps - 1) * per_step, 1) - 1
            self._close_head(updates[at], "train", self.state.step + 1)

    def _note_head(self, time: int) -> bool:
        """Note the call of a model as the possible start of a batch of inference. Return whether the row already has an
        earlier such call; False if the call cannot begin a batch of inference.
        """
        counters, state = self.row.counters, self.state
        fed = counters.fetches + counters.stops + counters.loader_start
        if state.step or state.explicit or self._is_marked or fed or counters.backwards or counters.updates:
            return False
        if state.inferring and counters.no_grad < counters.forwards:
            self._close_call(self.row.cut_here(time, self._values_from or self.position))
        if state.inferring and not self.row.counters.forwards:
            self._close("rest", time)
        row = self.row
        row.heads.append(Head(row.cut_here(time, self._values_from or self.position)))
        if len(row.heads) > MOST_FORWARDS:
            self._split_at_heads()
        return len(self.row.heads) > 1

    def _tell_head(self, root: int) -> None:
        """Note that the model call of the last `_note_head` was a forward without gradients. `root` is the number of
        the model's class.
        """
        row = self.row
        if not row.heads:
            return
        row.heads[-1] = Head(row.heads[-1].cut, root)
        if self.state.inferring:
            if len(row.heads) > 1 and row.heads[0].root == root:
                self._close_call(row.heads[-1].cut)
        elif len(row.heads) >= SURE_FORWARDS and row.counters.no_grad == row.counters.forwards:
            self._split_at_heads()

    def _split_at_heads(self) -> None:
        """Split the row at every later call of its first model, and note that the run infers: each such call begins a
        batch of inference.
        """
        self.state.inferring = True
        while len(heads := self.row.heads) > 1:
            cut = next((head.cut for head in heads[1:] if head.root == heads[0].root), None)
            if cut is None:
                return
            self._close_call(cut)

    def _close_last_calls(self) -> None:
        self._split_at_heads()
        if self.row.heads:
            self._close_call(self.row.cut_here(self._at, self.position))

    def _close_ended_call(self) -> None:
        """Close the call that has just ended in a run that infers: a detailed window that opens now is none of its."""
        if self._row is not None and self.state.inferring and self._row.heads:
            self._close_call(self._row.cut_here(self._at, self.position))

    def _close_fed_batch(self, time: int) -> None:
        """Close the batch of inference that a loader fed, before Stepscope holds the thread: it carries none of that."""
        counters = self.row.counters
        if counters.fetches and counters.forwards and not (self.state.step or counters.backwards or counters.updates):
            self._close(self._natural_kind(), time)

    def _close_call(self, cut: Cut) -> None:
        """Make the part of the row before the cut a batch of inference. It ends with its last call; the time from there
        to the cut, such as the wait for a request, is a row of its own.
        """
        end = self.row.find_end_of_call(cut)
        self._close_head(end, "eval")
        if end is not cut:
            self._close_head(move(cut, end), "rest")

    def _close(self, kind: str, time: int, step: int | None = None, after: bool = False) -> None:
        """Close the row at `time`. The next row begins at the current word of the log; if `after` is True, at the word
        behind it. `step` is the number of the closed training step, None for a row of another kind.
        """
        row = self.row
        position = self.position + 1 if after else self._values_from or self.position
        if time == row.start and step is None:
            row.position = self.state.position = position
            return
        self._finish_row(row, kind, time, step, self._open_row(time, position))

    def _finish_row(self, row: Row, kind: str, time: int, step: int | None, following: Row) -> None:
        if kind in ("train", "eval") and row.cuts and not row.grouped:
            row = self._drop_early_fetches(row)
        if step is not None:
            self.state.step = step
            self.state.started = True
            self.state.last_without = step if row.counters.no_grad else self.state.last_without
        row.settle()
        self._count_samples(row, kind)
        if kind == "eval" and not row.counted:
            kind, row.counters.samples = "rest", 0
        markers = self.state.explicit if kind == "train" else self._is_marked and kind == "eval"
        self._emit(Done(row, kind, self.state.step, time, markers))
        self._row = following
        self._after_stall = False
        # A checkpoint may hold the old state, which must not change any more.
        self.state = self.state.moved(following.position, following.start)

    def _count_samples(self, row: Row, kind: str) -> None:
        state = self.state
        if kind in ("train", "eval"):
            state.ahead, row.counters.samples = use_batches(state.ahead, row, kind == "train", self._usual_fetches)
        elif row.counters.stops and row.stopped is not None:
            state.ahead = drop_unused(state.ahead, row.stopped)

    def _drop_early_fetches(self, row: Row) -> Row:
        """Split off, as a row of their own, the batches that were fetched before the step and not used in it. Return
        the rest of the row; the whole row if there are no such batches.
        """
        counters = row.counters
        early = counters.fetches - max(counters.backwards, counters.forwards if not counters.backwards else 1)
        if early <= 0:
            return row
        cut = row.cuts[min(early, len(row.cuts)) - 1]
        rest = row.split(cut)
        rest.forward_point, rest.backward_point = row.forward_point, row.backward_point
        row.forward_point = row.backward_point = None
        row.settle()
        self.state.ahead, row.counters.samples = push_early(self.state.ahead, row.fetches), 0
        self._emit(Done(row, "rest", self.state.step, cut.time, False))
        return rest

    @property
    def row(self) -> Row:
        assert self._row is not None
        return self._row
