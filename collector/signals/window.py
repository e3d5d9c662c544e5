"""Record detailed windows: short Kineto sessions in the training process, opened and closed at the ends of steps, or
at the ends of calls of a model where nothing trains.

The raw trace goes to `events/`; the sidecar turns it into tables (`collector.sidecar.assemblers.window`). A session of
the user has priority: Stepscope never disturbs it, and a user session that starts inside a window ends the window.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import torch
from torch.autograd import profiler as autograd_profiler
from torch.optim.optimizer import register_optimizer_step_pre_hook

from collector.context.calls import MANY_CALLS, SURE_CALLS, has_optimizer
from collector.context.hooks import Undo
from collector.context.quiet import leave_out_import, leave_out_lines
from collector.context.signals import Signal, SignalContext
from collector.context.thread_ends import EndOfThread, NextCall
from collector.edge import uncounted, unseen
from collector.format.schema.modes import restrict
from collector.format.schema.removal import replace
from collector.options import Options, WindowOption
from collector.ring.codes import DETAILED
from collector.ring.windows import (
    NO_WINDOW,
    WINDOW_NEAR,
    WINDOW_OPEN,
    Order,
    WindowNote,
    decode_order,
    trace_file,
    write_window,
)
from collector.ring.words import ORDER_SLOT, WINDOW_SLOT

_TOO_EARLY = (
    "The run ended after {noun} {ended}, before the detailed window that was to open at {noun} {first}; "
    "choose an earlier one, such as window=(2, 3)."
)
_NO_STEP = "No detailed window opened: the run had no training step and no call of a model."
_NO_CALL = "The thread on which the detailed window opened, before call {window.first_step}, made no further call."
_BUSY = (
    "Another profiler was at work when step {step} began and did not end in time, so no detailed window was taken. "
    "Stop it, or choose other steps with the option `window`."
)
_NO_DEVICE = 'activities="device" was asked for, and PyTorch sees no device here: the detailed window records the CPU.'
_log = logging.getLogger("stepscope")
COSTLY_NS = 50_000_000
"""A step that is longer by this time in a window has some 30,000 operators or more; saving them stops the training for
10 times as long. A window that nobody asked for closes after such a step."""
PATIENCE_S = 1.0
"""Longest wait, in seconds, for another thread to close its window."""
_LEFT_OPEN = "The detailed window could not be saved: one thread opened it, and another closed it."
_OLDER_MEMORY = b"Memory block of unknown size was allocated before"
# What Kineto prints of a first session that another thread starts than the one that imported torch. It records all the same.
_OTHER_THREAD = b"External init callback must run in same thread"
_KINETO_LEVEL, _SILENT = "KINETO_LOG_LEVEL", "99"
# The functions that a profiler session of the user's code calls when it is prepared and started, through any interface.
_COMING = ("_prepare_profiler", "_enable_profiler", "_enable_profiler_legacy")


class WindowSignal(Signal):
    """The signal of detailed windows: `count` steps from `first` on, once by the option `window`, then at each order."""

    name = "window"
    option = "window"

    def __init__(self) -> None:
        self._plan: Order | None = None
        self._busy_for: Order | None = None
        self._order = 0
        self._window: _Window | None = None
        self._switching: int | None = None
        self._foreign = 0
        self._boundary_ns = 0
        self._has_called = self._has_optimizer = False
        self._taken: list[tuple[int, int]] = []
        self._left: _Window | None = None
        self._is_opening = False
        self._undo = Undo()
        self._of_thread = threading.local()

    def install(self, context: SignalContext) -> None:
        self._context = context
        self._header = context.log.header
        self._plan = Order(context.options.window.first, context.options.window.count, "option")
        if not torch.autograd.kineto_available():
            context.set_signal(self.name, "unavailable", "This PyTorch was built without Kineto.")
            return
        if _lacks_device(context.options):
            context.warn("no_device", _NO_DEVICE)
            _log.warning("stepscope: %s", _NO_DEVICE)
        self._watch_others()
        self._silence_kineto()
        context.occasions.append(self._on_occasion)
        context.calls.occasions.append(self._on_occasion)
        self._attend()

    def resume(self) -> None:
        """Open the window now if it is to begin with the first step: no end of a step comes before. Called when
        recording begins, or goes on after a pause.
        """
        if self._plan is not None and self._plan.first <= 1 and not self._context.steps.ended:
            calls = self._context.calls
            self._open(1, self._plan, by_calls=calls.ended > 0 and not calls.is_over)

    def pause(self) -> None:
        """End the open window, because it must not include work during a pause. Called when recording pauses."""
        self._close()

    def remove(self) -> None:
        if self._plan is not None and self._busy_for is not self._plan:
            steps, calls = self._context.steps.ended, self._context.calls
            ended, noun = (steps, "step") if steps else (calls.ended, calls.noun)
            reason = _TOO_EARLY.format(ended=ended, first=self._plan.first, noun=noun) if ended else _NO_STEP
            self._context.set_signal(self.name, "unavailable", reason)
        try:
            self._close()
        finally:
            self._undo.restore()

    def _on_occasion(self, ended: int) -> None:
        order = self._header[ORDER_SLOT]
        if order != self._order:
            self._order, self._plan = order, decode_order(order)
            self._attend()

    def _attend(self) -> None:
        """Register for the end of every step, until no window remains to be opened or closed."""
        if self._on_boundary not in self._context.boundaries:
            self._context.boundaries.append(self._on_boundary)
        if self._on_call not in self._context.calls.callbacks:
            self._context.calls.callbacks.append(self._on_call)

    def _on_call(self, ended: int) -> None:
        """Go on by calls of a model or by batches, in a run that has not trained so far."""
        window, calls = self._window, self._context.calls
        if window is None and self._plan is None:
            calls.callbacks.remove(self._on_call)
        elif window is None or window.thread == threading.get_ident():
            if window is not None:
                window.by_calls = True
            self._has_called = True
            self._advance(ended, by_calls=True)

    def _surely_infers(self) -> bool:
        """Return whether the run has made enough calls to count as one that only infers: more of them if there is an
        optimizer, which a script makes before it trains. On another thread than the one that began the recording, such
        as an actor's or one that prepares batches, many calls without an optimizer.
        """
        calls, is_home = self._context.calls, self._context.is_home
        if calls.ended >= MANY_CALLS and is_home:
            return True
        is_early = calls.ended < SURE_CALLS and not calls.has_marks if is_home else calls.ended < MANY_CALLS
        if self._has_optimizer or is_early:
            return False
        self._has_optimizer = has_optimizer()
        return not self._has_optimizer

    def _forget_calls(self) -> None:
        """Return to the plan of the option, because a run that took a window by calls trains after all. The window that
        opened with the recording goes on and holds the first steps.
        """
        self._has_called = False
        if self._window is not None and self._window.first_step == 1:
            self._window.by_calls = False
            self._window.ends_unix_ns.clear()
            return
        self._close()
        asked = self._context.options.window
        self._plan = self._plan or Order(asked.first, asked.count, "option")
        self._attend()

    def _on_boundary(self, ended: int) -> None:
        if self._is_opening:  # on another thread, whose calls came before this training
            return
        if self._has_called:
            self._forget_calls()
        if self._window is None and self._plan is None:
            self._context.boundaries.remove(self._on_boundary)
            return
        self._advance(ended)

    def _advance(self, ended: int, by_calls: bool = False) -> None:
        """Go on with the open window, or open the one that is due, at the end of step or call `ended`."""
        if self._window is not None:
            self._window.ends_unix_ns.append(time.time_ns())
            is_full = len(self._window.ends_unix_ns) >= self._window.plan.count
            # One that has opened by calls was sure then, and its thread may wait for ever after this call.
            is_sure = not by_calls or self._window.first_step > 1 or self._surely_infers()
            if (is_full or self._is_costly(self._window)) and is_sure:
                self._close()
        elif self._plan is not None and ended >= self._plan.first - 2:
            self._header[WINDOW_SLOT] = WINDOW_NEAR
            before_ns, self._boundary_ns = self._boundary_ns, time.perf_counter_ns()
            is_due = ended >= self._plan.first - 1
            if is_due and (self._surely_infers() if by_calls else self._is_free(ended + 1, self._plan.count)):
                usual_ns = self._boundary_ns - before_ns if before_ns else None
                self._open(ended + 1, self._plan, usual_ns, by_calls)

    def _is_free(self, first: int, count: int) -> bool:
        """Return whether no window of calls has numbers of these steps: the sidecar drops its rows by the numbers."""
        return all(first + count <= begin or end <= first for begin, end in self._taken)

    def _is_costly(self, window: _Window) -> bool:
        """Return whether a window that nobody asked for has made its first step much longer than the step before it;
        False after that step.
        """
        asked = self._context.options.window != WindowOption() if window.plan.trigger == "option" else False
        if asked or window.plan.trigger == "control" or window.usual_ns is None or len(window.ends_unix_ns) > 1:
            return False
        return window.ends_unix_ns[0] - window.start_unix_ns - window.usual_ns >= COSTLY_NS

    def _open(self, step: int, plan: Order, usual_ns: int | None = None, by_calls: bool = False) -> None:
        is_left = self._left is not None and self._left.is_open
        if self._foreign or is_left or torch.autograd._profiler_enabled():
            # Logged once; the window is tried again at each step until the other session has ended.
            if self._busy_for is not plan:
                self._busy_for = plan
                self._context.set_signal(self.name, "unavailable", _BUSY.format(step=step))
            return
        self._plan, self._is_opening = None, True
        try:
            with self._context.shielded(self.name), self._as_ours():
                self._window = _Window(step, plan, self._context.options, usual_ns)
                if by_calls and self._context.calls.is_over:  # the training has begun meanwhile
                    window, self._window = self._window, None
                    window.drop()
        finally:
            self._is_opening = False
        if self._window is None:  # or Kineto refused to start
            return
        self._window.by_calls = by_calls
        if by_calls:
            self._taken.append((step, step + plan.count))
        self._of_thread.end = EndOfThread(self._window, self._close_ended)
        if self._context.notes.signals.get(self.name, {}).get("state") == "unavailable":
            self._context.set_signal(self.name, "on")  # another profiler was in the way of an earlier window
        self._header[WINDOW_SLOT] = WINDOW_OPEN
        self._context.log.write(DETAILED, 1)
        for watch in self._context.window_watchers:
            watch(step)

    def _close(self) -> None:
        window, self._window = self._window, None
        if window is None:
            return
        self._header[WINDOW_SLOT] = NO_WINDOW
        self._context.log.write(DETAILED, 0)
        if threading.get_ident() == window.thread:
            self._save(window)
        elif window.by_calls:  # nobody waits for a thread that may call no more
            self._left = window
            self._context.set_signal(self.name, "unavailable", _LEFT_OPEN)
            self._context.elsewhere[0] = NextCall(window, self._close_ended, self._context.elsewhere)
        else:
            self._close_elsewhere(window)

    def _save(self, window: _Window) -> None:
        with self._context.shielded(self.name), self._as_ours():
            if window.by_calls and not window.ends_unix_ns:  # its thread made no call in it
                window.drop()
                self._context.set_signal(self.name, "unavailable", _NO_CALL.format(window=window))
            else:
                window.save(self._context.events)
        self._of_thread.end = None

    def _close_elsewhere(self, window: _Window) -> None:
        """Let the window's own thread save the window at its next optimizer step; wait for it at most `PATIENCE_S`.

        After that time the thread drops the window: a thread that ends with an open session ends the process with a
        segmentation fault.
        """
        saved, late = threading.Event(), threading.Event()

        def close_here(*_: object) -> None:
            if threading.get_ident() != window.thread:
                return
            handle.remove()
            if late.is_set():
                self._close_ended(window)
            else:
                self._save(window)
                saved.set()

        handle = register_optimizer_step_pre_hook(close_here)
        try:
            if not saved.wait(PATIENCE_S):
                self._context.set_signal(self.name, "failed", _LEFT_OPEN)
        finally:
            late.set()

    def _close_ended(self, window: _Window) -> None:
        """End the session of a window; the caller runs on the window's own thread."""
        if window is self._window:
            self._close()
        elif window.is_open:
            with self._context.shielded(self.name), self._as_ours():
                window.drop()

    @contextmanager
    def _as_ours(self) -> Iterator[None]:
        """Mark the profiler calls of this thread inside the block as Stepscope's own and not the user's."""
        self._switching = threading.get_ident()
        try:
            yield
        finally:
            self._switching = None

    def _silence_kineto(self) -> None:
        if _KINETO_LEVEL not in os.environ:
            os.environ[_KINETO_LEVEL] = _SILENT
            self._undo.call(lambda: os.environ.pop(_KINETO_LEVEL, None))

    def _watch_others(self) -> None:
        for name in _COMING:
            if hasattr(autograd_profiler, name):
                self._watch(name, self._others_come)
        self._watch("_disable_profiler", self._others_go)

    def _watch(self, name: str, notice: Callable[[str], None]) -> None:
        original = getattr(autograd_profiler, name)

        @uncounted
        def watched(*args: Any, **kwargs: Any) -> Any:
            if self._switching != threading.get_ident():
                notice(name)
            with unseen:
                return original(*args, **kwargs)

        self._undo.patch(autograd_profiler, name, watched)

    def _others_come(self, name: str) -> None:
        if self._window is not None:
            self._context.warn("window_cut_short", "The detailed window ended early: another profiler was started.")
            self._close()
        # A session is prepared when its warm-up begins and enabled later; from then on it is the user's turn.
        self._foreign = 1

    def _others_go(self, name: str) -> None:
        self._foreign = 0


class _Window:
    """One window: a Kineto session on the calling thread. `ends_unix_ns` are the ends of its steps so far on Kineto's
    clock. `usual_ns` is the duration of the step before the window, None if unknown. `by_calls`: its steps are calls.
    """

    def __init__(self, step: int, plan: Order, options: Options, usual_ns: int | None = None) -> None:
        before = time.perf_counter_ns()
        self.first_step = step
        self.plan = plan
        self.usual_ns = usual_ns
        self.pid, self.thread = os.getpid(), threading.get_ident()
        self.ends_unix_ns: list[int] = []
        self.is_open = True
        self.by_calls = False
        older = torch.empty(1, device="cpu") if options.memory else None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._session = make_session(options)
            # A session looks at a setting of the compiler. Its import takes a second; without it, nothing is compiled.
            with _leave_out_start(), leave_out_import(torch, "_inductor"):
                self._session.start()
        # In a session that records memory, PyTorch prints a line for the first freed block that is older than the
        # session, and then for each thousandth. The first such block is freed here, while the line is suppressed.
        with leave_out_lines(_OLDER_MEMORY):
            del older
        self._stall_ns = time.perf_counter_ns() - before
        self.start_unix_ns = time.time_ns()

    def save(self, events: Path) -> None:
        """Stop the session and save the trace, then the note that marks the trace as complete. OSError passes through."""
        end_unix_ns = time.time_ns()
        before = time.perf_counter_ns()
        path = trace_file(events, self.first_step)
        partial = path.with_name(f".{path.name}")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.drop()
            self._session.export_chrome_trace(str(partial))
        with suppress(OSError):  # some mounts do not allow a change of modes
            restrict(partial)
        replace(partial, path)
        self._stall_ns += time.perf_counter_ns() - before
        ends = tuple(self.ends_unix_ns)
        times = (self.start_unix_ns, end_unix_ns, ends, self._stall_ns)
        write_window(events, WindowNote(self.first_step, *times, self.plan.trigger, self.by_calls))

    def drop(self) -> None:
        self.is_open = False
        self._session.stop()


def _leave_out_start() -> AbstractContextManager[None]:
    is_main = threading.current_thread() is threading.main_thread()
    return nullcontext() if is_main else leave_out_lines(_OTHER_THREAD)


def make_session(options: Options) -> Any:
    """Return a new Kineto session with the options, not started yet.

    `trace_only` leaves out PyTorch's own summary of the events. Only call stacks need this summary.
    """
    from torch._C._profiler import _ExperimentalConfig

    stacks = options.level == "debug"
    config: dict[str, Any] = {}
    if not stacks:
        with suppress(TypeError):  # PyTorch before 2.10 does not have this option
            config["experimental_config"] = _ExperimentalConfig(trace_only=True)
    return torch.profiler._KinetoProfile(
        activities=_choose_activities(options),
        record_shapes=True,
        profile_memory=options.memory,
        with_stack=stacks,
        **config,
    )


def _lacks_device(options: Options) -> bool:
    """Return whether the options request only the device, and PyTorch finds no device."""
    known = torch.profiler.ProfilerActivity
    return "cpu" not in options.activities and not torch.profiler.supported_activities() - {known.CPU}


def _choose_activities(options: Options) -> list[torch.profiler.ProfilerActivity]:
    known = torch.profiler.ProfilerActivity
    wanted = [known.CPU] if "cpu" in options.activities else []
    if "device" in options.activities:
        wanted += [activity for activity in torch.profiler.supported_activities() if activity != known.CPU]
    return wanted or [known.CPU]


SIGNAL = WindowSignal
