"""The tools with which a signal records: log, notes, undo, and lists of callbacks for ended steps and other events."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from collector.context.calls import CallCounter
from collector.context.hooks import ImportWatch, Undo
from collector.context.loaders import LoaderRegistry
from collector.context.steps import StepCounter
from collector.edge import Edge, log_failure
from collector.notes import Notes, write_notes
from collector.options import Options
from collector.ring.words import WordLog

MOST_LOADERS = 32
"""The greatest number of loaders that are described. If a script makes a loader for every epoch, the last ones are
described."""
SAVED_AFTER = (20, 100, 500, 2_500, 12_500, 62_500)
"""Numbers of steps after which sums are saved, so that a killed run keeps the last saved sums."""
SETTLED_STEP = 30
"""First step for measurements made only once. Earlier steps may be slower, or lie in a detailed window."""
_UPDATES_UNSEEN = (
    "The parameter updates of this training are not seen, they are compiled or written by hand: each {counted} counts as "
    "a training step, and its update lies in the gap or the tail of a step. If a step has several of them, call "
    "profiler.step() after each step."
)
_log = logging.getLogger("stepscope")


class Signal:
    """One collected signal. A module of `collector.signals` declares `SIGNAL`, a class or a tuple of classes.

    `option` names the Profiler option that switches the signal off, "" for none. `install` begins recording; it patches
    other packages through `context.undo` or an `Undo` of the signal. `remove` stops recording. If either raises, the
    signal is switched off. A signal may have a method `rehearse`: it returns, by name, functions that call its hooks
    alone, to time them.
    """

    name: str
    option = ""

    def install(self, context: SignalContext) -> None:
        raise NotImplementedError

    def remove(self) -> None:
        """Stop recording. The changes in `context.undo` are undone afterwards."""


class GradientWatcher(Protocol):
    """A receiver of events of a backward and its updates. `takes` announces a gradient scaler's step, which may skip
    the update; `clears` announces a `zero_grad`."""

    def backward_starts(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None: ...
    def update_starts(self, optimizer: Any) -> None: ...
    def update_ends(self) -> None: ...
    def takes(self, optimizer: Any) -> None: ...
    def clears(self, optimizer: Any) -> None: ...


class ElsewhereWatcher(Protocol):
    """A receiver of calls of outermost modules on threads other than the recorded one. `starts` returns False if the
    recorded path is to be taken, because the thread is the recorded one now. Every True needs an `ends`."""

    def starts(self, is_inside: int) -> bool: ...
    def ends(self) -> None: ...


class SignalContext:
    """The tools and callback lists that signals share.

    - `boundaries` are called on the training thread with the number of each ended step.
    - `occasions` are called likewise, but only for some of the steps if steps are short.
    - `module_watchers` are called with each module that is called during the first steps, inner modules too.
    - `optimizer_watchers` are called with each of the first optimizers, after its first step.
    - `wait_watchers` are called on the training thread after each backward of a job with a process group, with the
      duration of the backward in ns.
    - `window_watchers` are called on the training thread with the first step of each detailed window that opens.
    - `gradient_watchers` are called at backwards, updates and clearings on the training thread, during a few steps.
    - `call_watchers` are called after calls of outermost modules in some steps, with start time, module, arguments and
      result.
    - `elsewhere[0]` is the receiver of calls of outermost modules on other threads; None once the run trains.
    - `calls` counts the calls of models and the batches before any training, and calls back like `steps`.
    - `in_backward[0]` is above 0 while the training thread is inside the autograd engine.
    """

    def __init__(self, rank_folder: Path, options: Options, log: WordLog, notes: Notes) -> None:
        self.rank_folder = rank_folder
        self.options = options
        self.log = log
        self.notes = notes
        self.clock = notes.clock
        self.undo = Undo()
        self.loaders = LoaderRegistry()
        self.in_backward: list[int] = [0]
        self.recorder_pid = 0  # of the process that writes the tables, 0 where there is none
        self.stack_reader = 0  # the same, if that process also reads Python stacks
        self.has_inferred = False  # whether a model was called or a batch was marked; known only at the end
        self.module_watchers: list[Callable[[Any], None]] = []
        self.optimizer_watchers: list[Callable[[Any], None]] = []
        self.wait_watchers: list[Callable[[int], None]] = []
        self.window_watchers: list[Callable[[int], None]] = []
        self.gradient_watchers: list[GradientWatcher] = []
        self.call_watchers: list[Callable[[int, Any, tuple[Any, ...], Any], None]] = []
        self.elsewhere: list[ElsewhereWatcher | None] = [None]
        self.steps = StepCounter(log)
        self.calls = CallCounter(self.steps, log)
        self._owner = threading.current_thread()
        self._home = threading.get_ident()
        self._adopting, self._is_adopted = threading.Lock(), False
        self.steps.on_guess = self._warn_of_guess
        self.boundaries: list[Callable[[int], None]] = self.steps.callbacks
        self.occasions: list[Callable[[int], None]] = self.steps.occasions

    def adopt_thread(self) -> bool:
        """Make the calling thread the training thread and return True. Return False if recording has ended, or another
        thread has trained already."""
        log = self.log
        if log.thread[0] == -1 or self.steps.has_trained:
            return False
        log.thread[0] = threading.get_ident()
        self._owner = threading.current_thread()
        return True

    def adopt_caller(self, has_called: bool) -> bool:
        """Make the calling thread the recorded one, because it calls a model and nothing trains or loads. Return False
        if the recorded thread is needed: it `has_called` a model and still runs.
        """
        with self._adopting:
            is_needed = (has_called or self._is_adopted) and self._owner.is_alive()
            if is_needed or self.steps.fetches or self.log.thread[0] < 0:
                return False
            self._is_adopted = self.adopt_thread()
            return self._is_adopted

    @property
    def is_home(self) -> bool:
        """Whether the calling thread is the one that began the recording."""
        return threading.get_ident() == self._home

    def come_back(self) -> bool:
        """Record the thread again that began the recording, because it loads; False on another thread, or where the
        run trains.
        """
        return self.is_home and self.log.thread[0] > 0 and self.adopt_thread()

    @property
    def events(self) -> Path:
        """The folder of this rank for recorded data that is not in tables yet."""
        return self.rank_folder / "events"

    def add_fact(self, name: str, value: Any) -> None:
        """Add a fact to `facts` of rank.json. `collector.format.schema.facts` declares the names."""
        self.notes.facts[name] = value
        self.save_notes()

    def add_loader(self, loader: dict[str, Any]) -> None:
        """Add the description of a loader to the notes, or replace that with the same `id`. The description has the
        fields of `schema.manifest.Loader`."""
        others = [entry for entry in self.notes.loaders if entry["id"] != loader["id"]]
        self.notes.loaders = sorted([*others, loader], key=lambda entry: int(entry["id"]))[-MOST_LOADERS:]
        self.save_notes()

    def warn(self, code: str, text: str) -> None:
        """Add a warning for readers of the run. A second warning with the same code is dropped."""
        if code not in self.notes.warnings:
            self.notes.warnings[code] = text
            self.save_notes()

    def _warn_of_guess(self, counted: str) -> None:
        self.warn("updates_unseen", _UPDATES_UNSEEN.format(counted=counted))

    def set_signal(self, name: str, state: str, reason: str = "") -> None:
        """Save in the notes that a signal is "on", "off", "failed" or "unavailable", and why; "" for no reason."""
        self.notes.signals[name] = {"state": state, "reason": reason}
        self.save_notes()

    def fail_signal(self, name: str, error: BaseException) -> None:
        """Log and note that a signal raised while recording, once per signal. The caller must record nothing more."""
        if self.notes.signals.get(name, {}).get("state") != "failed":
            _log.warning("stepscope: the signal %s failed and is switched off: %r", name, error)
            self.set_signal(name, "failed", f"It raised {error!r} and was switched off; the training went on.")

    def when_imported(self, name: str, then: Callable[[], None]) -> None:
        """Call `then` once: now if the module `name` is imported, else after its import. An error in `then` does not
        stop the import."""

        def follow() -> None:
            with log_failure("the use of %s is not recorded", name, level=logging.DEBUG):
                then()

        if name in sys.modules:
            follow()
            return
        watch = ImportWatch(name, follow)
        sys.meta_path.insert(0, watch)
        self.undo.call(watch.stop)

    def save_now_and_then(self, name: str, save: Callable[[], None], after: Sequence[int] = SAVED_AFTER) -> None:
        """Call `save` on the training thread after the numbers of steps in `after`, and when recording ends.

        An exception of `save` fails the signal `name`.
        """
        pending = list(after)

        def try_to_save() -> None:
            with self.shielded(name):
                save()

        def look(ended: int) -> None:
            if ended >= pending[0]:
                pending[:] = [step for step in pending if step > ended]
                if not pending:
                    self.occasions.remove(look)
                try_to_save()

        self.occasions.append(look)
        self.undo.call(try_to_save)

    def shielded(self, name: str) -> Edge:
        """Return a guard for code of a signal: an exception inside fails the signal, and does not reach the training."""
        return Edge(partial(self.fail_signal, name))

    def save_notes(self) -> None:
        """Write the notes to their file. A failed write is ignored, because a later one may succeed."""
        try:
            write_notes(self.notes, self.rank_folder)
        except OSError as error:
            _log.debug("stepscope: notes not written: %s", error)
