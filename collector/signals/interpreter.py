"""Record the Python interpreter of the training: garbage collections, other threads, and where to read its stacks."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import time
from _thread import start_new_thread
from threading import get_ident

from collector.context.hooks import bind
from collector.context.signals import Signal, SignalContext
from collector.frames.posting import TRAINER, post_thread
from collector.ring.codes import GC_END, GC_START

MOST_THREADS = 16
_NO_LOADER = -1
_LOOK_NS = 1_000_000_000
_COLLECTED_S = 0.02


class GarbageSignal(Signal):
    """The signal of garbage collections, which can interrupt the training thread anywhere."""

    name = "gc"

    def install(self, context: SignalContext) -> None:
        log = context.log
        words, mask, following, thread, now, get_ident = bind(log)

        def on_collection(phase: str, info: dict[str, int]) -> None:
            try:
                if get_ident() == thread[0]:
                    words[following() & mask] = now() + (GC_START if phase == "start" else GC_END)
            except KeyboardInterrupt:  # Python drops what a callback of its collector raises
                start_new_thread(_interrupt_again, ())

        gc.callbacks.append(on_collection)
        context.undo.call(lambda: gc.callbacks.remove(on_collection))


def _interrupt_again() -> None:
    """Send the process the signal of Ctrl-C again, after the collection has most likely ended."""
    time.sleep(_COLLECTED_S)
    os.kill(os.getpid(), signal.SIGINT)


class ThreadsSignal(Signal):
    """The signal of other Python threads, which share the interpreter with the training thread.

    Only ids and names of threads are noted, after some steps. The sidecar measures the processor time of these threads.
    """

    name = "threads"
    option = "resources"

    def install(self, context: SignalContext) -> None:
        self._context = context
        context.save_now_and_then(self.name, self._note)

    def _note(self) -> None:
        if not self._context.log.is_mine():
            return  # at the end no thread trains any more
        found = [
            {"id": thread.native_id, "name": thread.name[:100]}
            for thread in threading.enumerate()
            if thread.ident != get_ident() and thread.native_id is not None
        ][:MOST_THREADS]
        if found and self._context.notes.facts.get("python_threads") != found:
            self._context.add_fact("python_threads", found)


class StacksSignal(Signal):
    """The signal of Python stacks. It only writes the address of the training thread; the sidecar reads the stacks."""

    name = "stacks"
    option = "stacks"

    def install(self, context: SignalContext) -> None:
        self._context = context
        self._posted = (0, 0)
        self._next_ns = 0
        if not sys.platform.startswith("linux"):
            context.set_signal(self.name, "unavailable", "Stacks are sampled on Linux only.")
            return
        if not context.recorder_pid:
            context.set_signal(self.name, "unavailable", "No recorder process could be started that would read stacks.")
            return
        self._post()
        context.occasions.append(self._look_again)
        context.calls.occasions.append(self._look_again)

    def remove(self) -> None:
        self._context.stack_reader = 0

    def _look_again(self, step: int) -> None:
        """Announce the calling thread to the sidecar as the training thread whose stacks it may read: at most once a
        second, and only if the thread or the sidecar is a new one.
        """
        now = time.perf_counter_ns()
        if now >= self._next_ns:
            self._next_ns = now + _LOOK_NS
            if self._posted != (get_ident(), self._context.recorder_pid):
                with self._context.shielded(self.name):
                    self._post()

    def _post(self) -> None:
        context = self._context
        self._posted = (get_ident(), context.recorder_pid)
        post_thread(context.events, TRAINER, _NO_LOADER, context.recorder_pid)
        context.stack_reader = context.recorder_pid


SIGNAL = (GarbageSignal, ThreadsSignal, StacksSignal)
