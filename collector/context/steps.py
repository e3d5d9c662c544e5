"""Count training steps while they happen, on the training thread, without help from the script.

With a loader, a step ends where the next batch is fetched after an update.

Without a loader, a step ends with the last update of a cycle of optimizers. An optimizer of the cycle that steps again
after a backward begins a new cycle; from then on the length of the cycle is known. Batches that are fetched as a group
and then trained on one by one are separated by the same cycles.

The kind of loop may be known only after many batches or updates. The earlier steps are then separated afterwards
(`SPLIT_FETCHES`, `SPLIT_UPDATES`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter_ns

from collector.ring.codes import (
    SPLIT_BACKWARDS,
    SPLIT_FETCHES,
    SPLIT_UPDATES,
    STALL_END,
    STALL_START,
    STEP_ENDED,
    STEP_ENDS_NEXT,
)
from collector.ring.words import WordLog

_log = logging.getLogger("stepscope")
CYCLES_WITHOUT_FETCH = 32
"""Number of updates of an optimizer after one fetch from which the loop counts as reusing one batch, without a loader.
"""
BATCHES_WITHOUT_UPDATE = 64
"""Number of fetches with a backward but no update from which hooks cannot see updates, and each fetch is a step."""
PASSES_WITHOUT_UPDATE = 64
"""Number of backwards without a fetch and without an update, from which each backward counts as a step."""
LEAST_PASSES = 3
"""Least number of batches or backwards without an update that count as steps if the recording ends early."""
_FETCHES_OF_ONE_BATCH = 2
"""Number of fetch starts for one batch, the start of the loader included."""
FIRST_IDLE = 8
"""Fetches without a forward after which modules are searched again, because the script may have a new model."""
STEPS_PER_LOOK = 16
"""Steps between two reports of the write position to the reader, far fewer than a lap of the log."""
STEPS_OF_CARE = 64
"""Number of steps, at the start of a run and after a compilation, that are all followed by a call of `occasions`."""
SHORT_NS = 50_000_000
"""Duration of STEPS_PER_LOOK steps below which `occasions` are called only once for all of these steps."""
_BACKWARD = -1
STALL_NS = 50_000
"""Duration of all callbacks from which it is logged as a stall, so that no step includes their time: timing a hook takes
some 100 µs."""


def _do_nothing(*_: object) -> None:
    pass


@dataclass(slots=True, eq=False)  # one block of memory: between two steps nothing of it stays in the processor's caches
class StepCounter:
    """The count of ended steps. Signals call the methods, on the training thread only.

    `callbacks` are called with the number of each ended step. `occasions` are called likewise, but only at every
    sixteenth step if steps are short. They must not wait long, and need not see every step.

    `has_trained`: a backward or an update was seen, so the thread that ran it is the training thread. `fetched`: the
    loop fetches batches, so the start of an update ends no step. `grouped`: several batches were fetched in a row, so
    updates may still end steps. `updated_inside`: updates ran inside the current backward. `backwards` counts those of
    the current step, `fetches` those of the run. `idle_fetches` counts fetches since the last seen forward; the signal
    of forwards resets it, and `on_idle` is called when there are many. Once a step has more backwards than `patience`,
    `backward_starts` is to be called at each backward. If no update is seen, `on_guess` is called with the name of the
    unit that counts as a step, "batch" or "backward pass". `on_batch` is called at a fetch after a batch of inference.
    """

    _log: WordLog
    ended: int = 0
    callbacks: list[Callable[[int], None]] = field(default_factory=list)
    occasions: list[Callable[[int], None]] = field(default_factory=list)
    has_trained: bool = False
    fetched: bool = False
    grouped: bool = False
    updated_inside: bool = False
    backwards: int = 0
    fetches: int = 0
    has_compiled: bool = False
    idle_fetches: int = 0
    patience: int = PASSES_WITHOUT_UPDATE
    on_idle: Callable[..., None] = _do_nothing
    on_guess: Callable[[str], None] = _do_nothing
    on_batch: Callable[[], None] = _do_nothing
    _words: memoryview[int] = field(init=False)
    _following: Callable[[], int] = field(init=False)
    _mask: int = field(init=False)
    # Held here and not looked up in the module again: somebody may replace the module's clock.
    _now: Callable[[], int] = perf_counter_ns
    _looked_ns: int = field(default_factory=perf_counter_ns)
    _pace: int = 0
    _careful_until: int = STEPS_OF_CARE
    _explicit: bool = False
    _key: int = 0
    _updated: bool = False
    _ever_updated: bool = False
    _batches: int = 0
    _backwards_at_fetch: int = 0
    _backwards_at_update: int = 0
    _backwards_at_start: int = 0
    _idle_limit: int = FIRST_IDLE
    _cycle: dict[int, int] = field(default_factory=dict)
    _cycle_length: int = 0
    _by_closure: bool = False

    def __post_init__(self) -> None:
        self._words, self._following, self._mask = self._log.words, self._log.following, self._log.mask

    def backward_starts(self) -> None:
        """Note that a backward starts in a step with more backwards than `patience`. If neither fetches nor updates
        separate the steps, each backward counts as a step from now on; else `patience` grows."""
        if not self.patience:
            self.updated_inside = True
        elif self.fetched or self._explicit:
            self.patience *= 2  # fetches separate the steps
        elif self.backwards - self._backwards_at_update > PASSES_WITHOUT_UPDATE:
            self._end_passes(self.backwards - 1)
            self.backwards = self._cycle_length = 1
            self.patience = 0
            self.updated_inside = True
        else:
            self.patience = self._backwards_at_update + PASSES_WITHOUT_UPDATE

    def backward_ends(self) -> None:
        """Note that an outermost backward with updates inside ends. All these updates count as one update after it."""
        self.updated_inside = False
        self.update_starts(_BACKWARD)
        self.update_ends(_BACKWARD)

    def fetch_starts(self, key: int = 0) -> None:
        """Note a request for a batch, or that a loader starts. This ends the step if the update of the step has run.

        `key` identifies the loader and its epoch; it is 0 if no batch of a loader is fetched.
        """
        if self._updated and not self._explicit:
            # `_end` and `_count` are inlined here: none of this code is in the processor's caches now, and each call
            # would load another function into them.
            self.ended = ended = self.ended + 1
            self._words[self._following() & self._mask] = ended + STEP_ENDS_NEXT
            self._updated = False
            self.backwards = self._backwards_at_update = 0
            self._cycle.clear()
            if self.callbacks or not ended & self._pace:
                self._tell(ended)
            self.grouped = False
        elif key and key == self._key and self.idle_fetches and self.backwards == self._backwards_at_fetch:
            self.grouped = True
        elif not (self._ever_updated or self._explicit):
            if self.backwards > self._backwards_at_fetch:
                self._batches += 1
                if self._batches > BATCHES_WITHOUT_UPDATE:
                    self._end_batches()
            elif self.fetches and not self.idle_fetches:
                self.on_batch()
        self._backwards_at_fetch = self.backwards
        self._key = key
        self.fetches += 1
        self.fetched = True
        self.idle_fetches += 1
        if self.idle_fetches > self._idle_limit:
            self._idle_limit *= 8
            self.on_idle()

    def fetch_stops(self) -> None:
        """Note that a request brought no batch, because the loader is at its end. Until the next request, updates may
        end steps."""
        self.fetched = self.grouped = False

    def update_starts(self, optimizer: int) -> None:
        """Note that the optimizer with this id starts an update. In a loop without fetches, or with grouped batches,
        this ends the step before it if the step's cycle of optimizers is complete.
        """
        self._backwards_at_start = self.backwards
        if not self.patience and optimizer != _BACKWARD:
            self.patience, self._cycle_length = PASSES_WITHOUT_UPDATE, 0  # an update was seen after all
            self._cycle.clear()
        if (self.fetched and not self.grouped) or self._explicit or optimizer not in self._cycle:
            return
        if self.backwards > self._backwards_at_update or self._by_closure:
            self._cycle_length = len(self._cycle)
            backwards = self.backwards - self._backwards_at_update
            self._end(STEP_ENDED)
            self.backwards = backwards

    def update_ends(self, optimizer: int) -> None:
        """Note that the optimizer with this id ends an update, outside of any backward. In a loop without fetches, this
        ends the step if the update completes a cycle of known length."""
        self._updated = self._ever_updated = self.has_trained = True
        if self._explicit:
            return
        cycle = self._cycle
        count = cycle[optimizer] = cycle[optimizer] + 1 if optimizer in cycle else 1
        self._backwards_at_update = self.backwards
        if self.fetched and not self.grouped:
            if count > CYCLES_WITHOUT_FETCH and optimizer == next(reversed(self._cycle)):
                self.fetched = False
                self._cycle_length = len(self._cycle)
                self._end_cycles(count)
        else:
            # LBFGS and its like: the backwards are made inside of the update.
            self._by_closure = self.backwards > self._backwards_at_start
            # A fetch of the next batch also ends the step. In that case the earlier batches were read ahead and are no
            # group.
            if len(self._cycle) == self._cycle_length and self.backwards and not self.grouped:
                self._end(STEP_ENDED)

    def update_in_backward(self) -> None:
        """Note an update inside a backward; more may follow there. `backward_ends` then counts them as one update."""
        self.updated_inside = True

    def mark(self) -> int:
        """End a step because the user marks it, and return its number. From now on only such marks end steps."""
        self._explicit = True
        self._count()
        return self.ended

    def finish(self) -> None:
        """Complete the count when recording pauses or ends: end the current step if its update has run. If no update
        was seen, decide what counts as a step."""
        if self._explicit:
            return
        if self._has_hidden_passes():
            self._end_passes(self.backwards)
        elif self._updated and self.fetches <= _FETCHES_OF_ONE_BATCH and self._cycle:
            self._end_cycles(self._cycle[next(reversed(self._cycle))])
        elif self._updated:
            self._end(STEP_ENDED)
        elif not self._ever_updated and (self.has_compiled or self._batches >= LEAST_PASSES):
            self._end_hidden_updates()

    def _has_hidden_passes(self) -> bool:
        """Return whether there are backwards that neither an update nor a fetch separates, so that each is a step."""
        if self.ended or (self._batches and 2 * self._batches >= self.backwards):
            return False
        updates, hidden = sum(self._cycle.values()), self.backwards - self._backwards_at_update
        usual = self._backwards_at_update / updates if updates else 0
        return hidden > 2 * usual and hidden >= (1 if self.has_compiled else LEAST_PASSES)

    def _end_passes(self, passes: int) -> None:
        """End `passes` steps, one per backward. Callbacks are not called, because another step may have begun."""
        self.ended += passes
        self._log.write(SPLIT_BACKWARDS, self.ended)
        self._begin_step()
        self.on_guess("backward pass")

    def _end_cycles(self, steps: int) -> None:
        """End `steps` steps that were all made on one batch."""
        self._log.write(SPLIT_UPDATES, self.ended + steps)
        self.ended += steps - 1
        self._count()

    def _end_batches(self) -> None:
        """End a step in a loop whose updates no hook sees. The first call also makes a step of every earlier batch."""
        if not self.ended:
            self.ended = self._batches - 1
            self._log.write(SPLIT_FETCHES, self.ended)
            self.on_guess("batch")
        self._end(STEP_ENDS_NEXT)

    def _end_hidden_updates(self) -> None:
        """Count every batch as a step, when the recording ends and no update was seen."""
        if self._batches and not self.ended:
            self.ended = self._batches
            self._log.write(SPLIT_FETCHES, self.ended)
            self.on_guess("batch")
        if self.backwards > self._backwards_at_fetch:
            self._end(STEP_ENDED)

    def compile_starts(self) -> None:
        """Prepare for a compilation: call `occasions` after each of the next steps, so that the compilation is noted in
        its own step.
        """
        self.has_compiled = True
        self._careful_until = self.ended + STEPS_OF_CARE
        self._pace = 0

    def _end(self, code: int) -> None:
        self._words[self._following() & self._mask] = self.ended + 1 + code
        self._count()

    def _count(self) -> None:
        self.ended = ended = self.ended + 1
        self._begin_step()
        if self.callbacks or not ended & self._pace:
            self._tell(ended)

    def _begin_step(self) -> None:
        self._updated = False
        self.backwards = self._backwards_at_update = self._backwards_at_fetch = 0
        self._cycle.clear()

    def _tell(self, ended: int) -> None:
        if not ended & self._pace:
            self._look(ended)
        if self.callbacks:
            self._call_back(self.callbacks)

    def _look(self, ended: int) -> None:
        if not ended & STEPS_PER_LOOK - 1:
            self._log.mark_head(ended)
            now = self._now()
            is_short = ended > self._careful_until and now - self._looked_ns < SHORT_NS
            self._pace = STEPS_PER_LOOK - 1 if is_short else 0
            self._looked_ns = now
        if self.occasions:
            self._call_back(self.occasions)

    def _call_back(self, callbacks: list[Callable[[int], None]]) -> None:
        before = self._now()
        for callback in tuple(callbacks):
            self._call_one(callback, callbacks)
        after = self._now()
        if after - before > STALL_NS:
            self._log.write(STALL_START, before)
            self._log.write(STALL_END, after)

    def _call_one(self, callback: Callable[[int], None], callbacks: list[Callable[[int], None]]) -> None:
        try:
            callback(self.ended)
        except Exception as error:  # noqa: BLE001  an edge: what a signal does at a boundary must not reach training
            callbacks.remove(callback)
            _log.warning("stepscope: a signal failed at a step boundary and is switched off: %r", error)
        # Ctrl-C arrived meanwhile. Frames of calls that Stepscope made are no frames of the script.
        except BaseException as error:
            BaseException.with_traceback(error, None)
            raise
