"""Python stacks of the training thread: the recorder process reads them, this only says where they lie."""

from __future__ import annotations

import sys
import time
from threading import get_ident

from collector.context.signals import SignalContext
from collector.frames.posting import TRAINER, post_thread

_NO_LOADER = -1
_LOOK_NS = 1_000_000_000


class StacksSignal:
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

    def remove(self) -> None:
        self._context.stack_reader = 0
        if self._look_again in self._context.occasions:
            self._context.occasions.remove(self._look_again)

    def _look_again(self, step: int) -> None:
        """Offer this thread where another one trains by now, or another process reads."""
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


SIGNAL = StacksSignal
