"""Turn the words of the event log into rows of `steps`: a pure state machine that makes one row after the other.

**How a row ends.** The training thread counts the steps (`collector.context.steps`) and ends step n with one of three
words: STEP_ENDS_NEXT (the step ends at the next timed word, before the fetch of the next batch), STEP_ENDED (the step
ended with the last update, in loops without a loader), or STEP_MARK (`step()` was called). If the thread understood the
loop late, one word (SPLIT_FETCHES, SPLIT_UPDATES, SPLIT_BACKWARDS) shows that the open row holds several steps. All
other borders are drawn here: a row without training becomes `startup` (before the first call), `eval` (forwards, no
backward) or `rest`.

**The contents of a row.** Every timed word ends a stretch of time. The stretch belongs to the innermost open call
(`_stack`), so phases are exclusive and sum to the row to the nanosecond. A stretch outside of every call is UNKNOWN
until the next call opens: `rows.classify` then decides by the calls on both sides, and END stands for the end of the
row. There are three exceptions. Collectives are ignored as neighbours. Time after an update is held back, because a
step may turn out to end there. Time after a forward without gradients (ACTED) is a gap in a row that trains, and
forward in any other row.

**Late decisions.** Many words may pass before it is known whether a fetch, an update or a model's call begins a row. So
the row keeps cuts: points with the sums so far, at which the row can be split without reading words again.
    cuts     a batch was requested, and the use of the previous batch is not known yet
    updates  an update ended; STEP_ENDED and SPLIT_UPDATES cut here
    passes   a backward ended; SPLIT_BACKWARDS cuts here
    heads    a model was called before any training: SURE_FORWARDS calls in a row count as batches of inference, each
             of which ends with its call (`_close_call`)
Batches that were fetched before their step become a row of their own; their samples wait in `state.ahead`
(`prefetched`) for the step that trains on them.

**Continuing in another process.** `state` holds everything that outlives a row, and the position in the log at which
the open row begins: the next process reads the words of that row again. Step numbers that are already written are
skipped (`_feed_value`). After missing words (`lose`) no call counts as open, and the open row is not split any more.

**Values come before their word**: LOADER and QUEUE before FETCH_START, BATCH before FETCH_END. The row that a fetch
begins starts at these values (`_values_from`), so that a checkpoint taken there includes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from collector.format.phases import BACKWARD, COMMUNICATION, DATA_WAIT, FORWARD, OPTIMIZER
from collector.ring import codes
from collector.ring.packing import unpack_device_phase, unpack_fetch
from collector.ring.words import PAYLOAD_MASK
from collector.sidecar.steps.calls import CallLog
from collector.sidecar.steps.prefetched import Ints, shift_samples
from collector.sidecar.steps.row_keeping import MOST_CUTS, Done, RowKeeper, State
from collector.sidecar.steps.rows import UNKNOWN, Fetch, FetchStart, Moment, QueueSample, Row

_OPENS = {
    codes.FETCH_START: DATA_WAIT,
    codes.LOADER_START: DATA_WAIT,
    codes.FORWARD_START: FORWARD,
    codes.BACKWARD_START: BACKWARD,
    codes.UPDATE_START: OPTIMIZER,
    codes.ZERO_START: OPTIMIZER,
    codes.SCALER_START: OPTIMIZER,
    codes.COLLECTIVE_START: COMMUNICATION,
}
_CLOSES = {
    end: _OPENS[start]
    for start, end in (
        *((start, start + codes.FETCH_END - codes.FETCH_START) for start in _OPENS),
        (codes.FETCH_START, codes.FETCH_STOP),
    )
}
MOST_CALLS = 10_000
"""Most collectives that are listed in one row."""
_STEP_CODES = (codes.STEP_ENDS_NEXT, codes.STEP_ENDED, codes.SPLIT_FETCHES, codes.SPLIT_UPDATES, codes.SPLIT_BACKWARDS)
_UPDATES = (codes.UPDATE_END, codes.SCALER_END, codes.BACKWARD_END)


class StepMachine(RowKeeper):
    """The state machine that makes rows of words. Feed words in order; `emit` is called with each row in time order.

    `state` is the state at the start of the open row. `device_times` are (step, index of the phase, ns); the reader of
    this list empties it.
    """

    def __init__(self, emit: Callable[[Done], None], state: State | None = None) -> None:
        super().__init__(emit, state)
        # Phases of the calls that are open; UNKNOWN is a closure inside of an update, which counts as no call.
        self._stack: list[int] = []
        self._is_reading = False
        self.is_paused = False
        self._closes_next: int | None = None
        self._batch = 0
        self._queue: int | None = None
        self._gc_start = self._stall_start = 0
        self._updates_at_scaler = 0
        self._fetch_start = 0
        self._calls = CallLog()
        self.device_times: list[tuple[int, int, int]] = []
        self._device_step = 0
        self._collective_start = 0

    def feed(self, words: Iterable[int]) -> None:
        for word in words:
            code, payload = word & ~PAYLOAD_MASK, word & PAYLOAD_MASK
            if code <= codes.LAST_TIMED:
                self._feed_time(code, payload)
            else:
                self._feed_value(code, payload)
            self.position += 1

    @property
    def is_at_fetch(self) -> bool:
        """Whether a fetch has just begun a row of training, and nothing else is in progress."""
        row, state = self._row, self.state
        if (
            row is None
            or row.stretches
            or self._stack != [DATA_WAIT]
            or self._closes_next is not None
            or self._gc_start
        ):
            return False
        if self._is_reading:
            return False
        is_plain = state.started and not (state.explicit or state.detailed or row.detailed)
        return is_plain and row.start == self._at == self._fetch_start

    def skip_to(self, fetch: FetchStart) -> None:
        """Continue at a later fetch, which begins the open row. Others have processed the steps before it."""
        self.state = self.state.moved(fetch.position, fetch.time)
        self.state.step = fetch.step
        if fetch.without_gradients:
            self.state.last_without = fetch.step
        self._row = Row(fetch.time, fetch.position)
        self._at = self._fetch_start = fetch.time
        self._loader = unpack_fetch(fetch.loader)
        if fetch.queue is not None:
            self._row.queues.append(QueueSample(fetch.time, self._loader[0], fetch.queue))
        self.position = fetch.following

    def count_steady_samples(self, loaders: Ints, epochs: Ints, samples: Ints) -> Ints:
        """Return the samples that each of several similar steps trained on, with one fetch each."""
        self._usual_fetches |= dict.fromkeys(loaders.tolist(), 1)
        if not self.state.ahead:
            return samples
        self.state.ahead, used = shift_samples(self.state.ahead, loaders, epochs, samples)
        return used

    def lose(self) -> None:
        """Forget all open calls: words are missing at this point, and the calls may have ended in them."""
        self._stack.clear()
        self._calls.lose()
        self._closes_next = None
        self._is_reading = self._is_marked = False
        if self._row is not None:
            self._row.forget_cuts()
            self._row.graphs = 1  # a forward with gradients may be among them

    def find_moment(self) -> Moment | None:
        """Return the state of the training thread at the end of the log, None before the first row."""
        row = self._row
        if row is None:
            return None
        phase = self._stack[-1] if self._stack else UNKNOWN
        inside = COMMUNICATION in self._stack
        since = self._collective_start if inside else self._at
        begun = (self._calls.awaited if inside else None) or next((call for call in row.calls if call.is_open), None)
        return Moment(self.state.step, phase, row.previous, inside, since, row.calls, begun)

    def finish(self) -> None:
        """Close the open row: the log ends here."""
        if self._row is None:
            return
        if self._row.counters.updates and not self.state.explicit:
            self._close("train", self._at, self.state.step + 1)
        elif self._at > self._row.start:
            if self._natural_kind() == "eval" and not self.state.step:
                self._close_last_calls()
            self._close(self._natural_kind(), self._at)

    def _feed_time(self, code: int, time: int) -> None:
        if code in (codes.GC_START, codes.GC_END):
            self._feed_collection(code, time)
            return
        if self._row is None:
            self._row, self._at = self._open_row(time, self.position), time
        time = max(time, self._at)
        self._row.add(self._find_phase(), self._at, time)
        self._at = time
        if self._closes_next is not None:
            step, self._closes_next = self._closes_next, None
            self._close("train", time, step)
        if code in _OPENS:
            self._open(code, time)
        elif code in _CLOSES:
            self._leave(code, time)
        else:
            self._mark(code, time)
        self._values_from = None

    def _find_phase(self) -> int:
        phase = self._stack[-1] if self._stack else UNKNOWN
        return DATA_WAIT if phase == UNKNOWN and self._is_reading else phase

    def _open(self, code: int, time: int) -> None:
        phase = _OPENS[code]
        if self._stack and self._stack[-1] == UNKNOWN:
            self.row.resolve(phase)
        if not self._stack:
            if code in (codes.FETCH_START, codes.LOADER_START):
                self._close_before_fetch(code, time)
            elif not self.state.started and phase != COMMUNICATION:
                self._start(time)
            elif code in (codes.FORWARD_START, codes.ZERO_START) and self._is_evaluation_without_loader():
                self._close("eval", time)
            if code != codes.FORWARD_START or not self._note_head(time):
                self.row.resolve(phase)
        counters = self.row.counters
        if code == codes.FETCH_START and DATA_WAIT not in self._stack:
            self._fetch_start = time
            if self._queue is not None:
                self.row.queues.append(QueueSample(time, self._loader[0], self._queue))
                self._queue = None
        elif code == codes.FORWARD_START:
            counters.forwards += 1
            self.row.graphs += 1
        elif code == codes.BACKWARD_START:
            counters.backwards += 1
            self.state.inferring = False
            self.row.heads, self.row.graphs = [], 0
        elif code == codes.UPDATE_START:
            counters.updates += 1
        elif code == codes.ZERO_START:
            counters.zeros += 1
        elif code == codes.SCALER_START:
            self._updates_at_scaler = counters.updates
        elif code == codes.COLLECTIVE_START:
            self._collective_start = time
        self._stack.append(phase)

    def _leave(self, code: int, time: int) -> None:
        row, phase = self.row, _CLOSES[code]
        if phase not in self._stack:
            return  # the start lies before the recording, or its record was lost
        while self._stack.pop() != phase:
            pass
        if code == codes.FETCH_END and DATA_WAIT not in self._stack:
            row.counters.fetches += 1
            loader, epoch = self._loader
            row.fetches.append(Fetch(loader, epoch, self._batch, self._fetch_start, time - self._fetch_start, 0))
            row.answer(self._fetch_start, self._batch)
        elif code == codes.FETCH_STOP:
            row.counters.stops += 1
            row.stopped = self._loader[0]
            row.answer(self._fetch_start, None)
        elif code == codes.COLLECTIVE_END:
            self._calls.hold(self._collective_start, time)
        elif code == codes.LOADER_READY and row.stretches:
            row.counters.loader_start += row.stretches[-1].end - max(row.stretches[-1].start, row.start)
        elif code == codes.SCALER_END and row.counters.updates == self._updates_at_scaler:
            row.counters.updates += 1
            row.counters.skipped += 1
        if phase != COMMUNICATION and (not self._stack or self._stack[-1] == UNKNOWN):
            row.previous = phase
        if not self._stack:
            known = row.updates[-1].counters.updates if row.updates else 0
            ended = [row.updates] if code in _UPDATES and row.counters.updates > known else []
            for cuts in (*ended, row.passes) if code == codes.BACKWARD_END else ended:
                cuts.append(row.cut_here(time, self.position + 1))
                del cuts[:-MOST_CUTS]

    def _mark(self, code: int, time: int) -> None:
        if code == codes.STEP_MARK:
            self.state.explicit = True
            self._close("train", time, self.state.step + 1, after=True)
        elif code in (codes.CLOSURE_START, codes.CLOSURE_END):
            self._mark_closure(code)
        elif code in (codes.READ_START, codes.READ_END):
            self._mark_reading(code == codes.READ_START)
        elif code in (codes.BATCH_START, codes.BATCH_END):
            self._mark_batch(code, time)
        elif code == codes.PAUSE:
            self.is_paused = True
            self.finish()
            self._stack.clear()
            self._is_reading = self._is_marked = False
            self.row.position = self.state.position = self.position + 1
        elif code == codes.RESUME:
            self.is_paused = False
            self._close("rest", time, after=True)
        elif code == codes.STALL_START:
            self._close_fed_batch(time)
            self._stall_start = time
        elif code == codes.STALL_END:
            # If the end of the step was known late, the loop has worked since then: what is longer decides.
            is_longer = time - self._stall_start >= self._stall_start - self.row.start
            if self.row.previous == UNKNOWN and not self._stack and is_longer:
                self._close("rest", time)
                self._after_stall = True
        elif code == codes.FORWARD_POINT:
            self.row.forward_point = time if self.row.forward_point is None else self.row.forward_point
        elif code == codes.BACKWARD_POINT:
            self.row.backward_point = time

    def _mark_closure(self, code: int) -> None:
        if code == codes.CLOSURE_START:
            self._stack.append(UNKNOWN)
        elif UNKNOWN in self._stack:
            self.row.resolve(OPTIMIZER)
            while self._stack.pop() != UNKNOWN:
                pass

    def _mark_reading(self, begins: bool) -> None:
        if self._is_reading != begins and (not self._stack or self._stack[-1] == UNKNOWN):
            if begins:
                self.row.resolve(DATA_WAIT)
            else:
                self.row.previous = DATA_WAIT
        self._is_reading = begins

    def _mark_batch(self, code: int, time: int) -> None:
        counters = self.row.counters
        if self._stack or self.state.step or counters.backwards or counters.updates:
            self._is_marked = False  # the script trains: then its batches are its steps
        elif code == codes.BATCH_START:
            if not self.state.started:
                self._start(time)
            self._close(self._natural_kind(), time)
            self._is_marked, self.row.heads = True, []
        elif self._is_marked:
            self._close("eval", time, after=True)
            self._is_marked = False

    def _feed_value(self, code: int, value: int) -> None:
        if code in _STEP_CODES and value <= self.state.step:
            return  # read again after a takeover: that step is written
        if code == codes.STEP_ENDS_NEXT:
            self._closes_next = value
        elif code in (codes.LOADER, codes.QUEUE) and DATA_WAIT in self._stack:
            pass  # what feeds the step is asked already; it asks something else for the batch
        elif code == codes.LOADER:
            self._loader = unpack_fetch(value)
            self._values_from = self.position
        elif code == codes.BATCH:
            self._batch = value
        elif code == codes.QUEUE:
            self._queue = value
        elif code == codes.DETAILED:
            self.state.detailed = bool(value)
            if value and not self._stack:
                self._close_ended_call()
            if self._row is not None and self._closes_next is None:
                self._row.detailed = self._row.detailed or bool(value)
        elif self._row is not None:
            self._feed_row(self._row, code, value)

    def _feed_row(self, row: Row, code: int, value: int) -> None:
        if code == codes.STEP_ENDED:
            self._close_at_update(value)
        elif code == codes.SPLIT_UPDATES:
            self._split_at_updates(value)
        elif code in (codes.SPLIT_FETCHES, codes.SPLIT_BACKWARDS):
            self._split_at_last(value, "cuts" if code == codes.SPLIT_FETCHES else "passes")
        elif code == codes.SAMPLES and row.fetches:
            row.counters.samples += value
            row.fetches[-1] = row.fetches[-1]._replace(samples=value)
        elif code == codes.NOT_COUNTED:
            row.counted = False
        elif code == codes.NO_GRAD:
            row.counters.no_grad += 1
            row.graphs = max(row.graphs - 1, 0)
            self._tell_head(value)
        elif code == codes.REDUCED:
            self._add_reduction(value)
        else:
            self._feed_call(code, value)

    def _feed_call(self, code: int, value: int) -> None:
        if code == codes.DEVICE_STEP:
            self._device_step = value
        elif code == codes.DEVICE_PHASE:
            self.device_times.append((self._device_step, *unpack_device_phase(value)))
        elif (call := self._calls.feed(code, value)) is not None and len(self.row.calls) < MOST_CALLS:
            self.row.calls.append(call)

    def _add_reduction(self, value: int) -> None:
        """Note that a backward reduced gradients for `value` ns; what the thread did not wait for is `hidden`."""
        held = left = 0
        for phase, start, end in reversed(self.row.stretches):
            if phase == COMMUNICATION:
                held, left = end - start, end
                break
            if phase != BACKWARD:
                break
        counters = self.row.counters
        counters.reductions += 1
        counters.hidden += max(value - held, 0)
        self._calls.reduce(value, held, left)

    def _feed_collection(self, code: int, time: int) -> None:
        if code == codes.GC_START:
            self._gc_start = time
        elif self._gc_start and self._row is not None:
            took = max(time - max(self._gc_start, self._row.start), 0)
            self._row.counters.gc += took
            self._row.counters.gc_called += took if self._stack else 0
            self._gc_start = 0
