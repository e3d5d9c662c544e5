"""Count training steps as they happen, on the training thread, without being told.

A step ends where the next batch is fetched after an update. Where there is no loader, it ends with the last update
of a cycle of optimizers: when one that has stepped already steps again after a backward, a new cycle has begun, and
from then on the length of the cycle is known. What kind of loop it is may be known only after many batches or
updates; the steps before are then told apart afterwards (`SPLIT_FETCHES`, `SPLIT_UPDATES`). Batches that are fetched as
a group, and then trained on one by one, are told apart by the same cycles.
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
"""Updates of one optimizer on one fetch after which the loop counts as one without a loader (it reuses one batch)."""
BATCHES_WITHOUT_UPDATE = 64
"""Fetches with a backward and no update after which updates count as unseen by hooks: each fetch is then a step."""
PASSES_WITHOUT_UPDATE = 64
"""The same without a loader, in backwards: each backward is then a step."""
LEAST_PASSES = 3
"""If the recording ends before that, this many batches or backwards without an update are enough to count as steps."""
_FETCHES_OF_ONE_BATCH = 2
"""The start of the loader counts as one."""
FIRST_IDLE = 8
"""Fetches without a forward after which modules are looked for again: the script may have a new model."""
STEPS_PER_LOOK = 16
"""Steps after which the reader is told how far the writer is: much less than a lap of the log."""
STEPS_OF_CARE = 64
"""Steps at the start of a run, and after a compilation, at each of which all that is due is done."""
SHORT_NS = 50_000_000
"""If STEPS_PER_LOOK steps take less than this, `occasions` are called once for all of them."""
_BACKWARD = -1
STALL_NS = 200_000
"""A callback that takes longer is written down, so that no step carries its time."""


def _do_nothing(*_: object) -> None:
    pass


@dataclass(slots=True, eq=False)  # one block of memory: between two steps nothing of it is left in the caches
class StepCounter:
    """The number of ended steps. The methods are called by the signals, on the training thread only.

    `callbacks` are called with the number of each step that ended; `occasions` likewise, but where steps are short only
    for every sixteenth: they are for what must not wait long and need not know of every step.

    `has_trained`: a backward or an update was seen, so the thread that did it is the one that trains. `fetched`: the loop
    fetches batches, so an update that begins ends nothing. `grouped`: several batches were fetched with nothing done
    between them, so updates may end steps all the same. `idle_fetches` counts since the last forward that was seen; the
    signal of forwards sets it back. With more backwards than `patience` in one step, `backward_starts` is to be called at
    each of them. `on_guess` is called with what counts as a step where no update is seen.
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
    _words: memoryview[int] = field(init=False)
    _following: Callable[[], int] = field(init=False)
    _mask: int = field(init=False)
    _now: Callable[[], int] = perf_counter_ns  # not looked up in the module again: somebody may put another clock there
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
        """Another backward begins in a step that has had many, or in a loop whose updates are known not to be seen."""
        if not self.patience:
            self.updated_inside = True
        elif self.fetched or self._explicit:
            self.patience *= 2  # what is fetched tells its steps apart
        elif self.backwards - self._backwards_at_update > PASSES_WITHOUT_UPDATE:
            self._end_passes(self.backwards - 1)
            self.backwards = self._cycle_length = 1
            self.patience = 0
            self.updated_inside = True
        else:
            self.patience = self._backwards_at_update + PASSES_WITHOUT_UPDATE

    def backward_ends(self) -> None:
        """The outermost backward is over, and updates were made inside of it: they count as one, by the backward itself."""
        self.updated_inside = False
        self.update_starts(_BACKWARD)
        self.update_ends(_BACKWARD)

    def fetch_starts(self, key: int = 0) -> None:
        """A batch is asked for, or a loader is started: the step that has updated ends here.

        `key` is that of the loader in this epoch, 0 for what gives no batch of a loader.
        """
        if self._updated and not self._explicit:
            # `_end` and `_count` written out: nothing of this is in the processor's caches now, and each function more
            # would have to be brought there, too.
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
        elif not (self._ever_updated or self._explicit) and self.backwards > self._backwards_at_fetch:
            self._batches += 1
            if self._batches > BATCHES_WITHOUT_UPDATE:
                self._end_batches()
        self._backwards_at_fetch = self.backwards
        self._key = key
        self.fetches += 1
        self.fetched = True
        self.idle_fetches += 1
        if self.idle_fetches > self._idle_limit:
            self._idle_limit *= 8
            self.on_idle()

    def fetch_stops(self) -> None:
        """The iteration ended without a batch."""
        self.fetched = self.grouped = False

    def update_starts(self, optimizer: int) -> None:
        """An optimizer is about to step in a loop without fetches, or of groups; close a cycle that is over, as is seen now."""
        self._backwards_at_start = self.backwards
        if not self.patience and optimizer != _BACKWARD:
            self.patience, self._cycle_length = PASSES_WITHOUT_UPDATE, 0  # an update that is seen, after all
            self._cycle.clear()
        if (self.fetched and not self.grouped) or self._explicit or optimizer not in self._cycle:
            return
        if self.backwards > self._backwards_at_update or self._by_closure:
            self._cycle_length = len(self._cycle)
            backwards = self.backwards - self._backwards_at_update
            self._end(STEP_ENDED)
            self.backwards = backwards

    def update_ends(self, optimizer: int) -> None:
        """An optimizer has stepped, outside of any backward."""
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
            # A batch that is fetched next ends the step, too: then what came early was read ahead, and is no group.
            if len(self._cycle) == self._cycle_length and self.backwards and not self.grouped:
                self._end(STEP_ENDED)

    def update_in_backward(self) -> None:
        """An optimizer has stepped inside of a backward; more of them may follow in the same one."""
        self.updated_inside = True

    def mark(self) -> int:
        """The user says that a step ends here; from now on only the user says so. Return the number of the step."""
        self._explicit = True
        self._count()
        return self.ended

    def finish(self) -> None:
        """Recording stops: the step that has updated is over."""
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
        """Say whether the recording ends after backwards that no update and no fetch tells apart."""
        if self.ended or (self._batches and 2 * self._batches >= self.backwards):
            return False
        updates, hidden = sum(self._cycle.values()), self.backwards - self._backwards_at_update
        usual = self._backwards_at_update / updates if updates else 0
        return hidden > 2 * usual and hidden >= (1 if self.has_compiled else LEAST_PASSES)

    def _end_passes(self, passes: int) -> None:
        """Every one of so many backwards was a step. Nobody is called back: another one may have begun."""
        self.ended += passes
        self._log.write(SPLIT_BACKWARDS, self.ended)
        self._begin_step()
        self.on_guess("backward pass")

    def _end_cycles(self, steps: int) -> None:
        """So many steps were made on one batch."""
        self._log.write(SPLIT_UPDATES, self.ended + steps)
        self.ended += steps - 1
        self._count()

    def _end_batches(self) -> None:
        """Updates are made where no hook sees them: every batch was a step. One more ends here."""
        if not self.ended:
            self.ended = self._batches - 1
            self._log.write(SPLIT_FETCHES, self.ended)
            self.on_guess("batch")
        self._end(STEP_ENDS_NEXT)

    def _end_hidden_updates(self) -> None:
        """The recording ends before it was sure that every batch is a step, but code was compiled: so it is."""
        if self._batches and not self.ended:
            self.ended = self._batches
            self._log.write(SPLIT_FETCHES, self.ended)
            self.on_guess("batch")
        if self.backwards > self._backwards_at_fetch:
            self._end(STEP_ENDED)

    def compile_starts(self) -> None:
        """Code is about to be compiled: what is noted of it belongs to a step, so steps are looked after one by one."""
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
        """Do what is not due at every step, and find out how short the steps are."""
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
        # Ctrl-C came meanwhile. What was called in our name is none of the script's frames.
        except BaseException as error:
            BaseException.with_traceback(error, None)
            raise
