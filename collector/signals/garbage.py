"""Garbage collections, which run inside whatever the training thread is doing."""

from __future__ import annotations

import gc
import threading
import time

from collector.context.signals import SignalContext
from collector.ring.codes import GC_END, GC_START


class GarbageSignal:
    name = "gc"
    option = ""

    def install(self, context: SignalContext) -> None:
        log = context.log
        words, mask, following, thread = log.words, log.mask, log.following, log.thread
        now, get_ident = time.perf_counter_ns, threading.get_ident

        def on_collection(phase: str, info: dict[str, int]) -> None:
            if get_ident() == thread[0]:
                words[following() & mask] = now() + (GC_START if phase == "start" else GC_END)

        gc.callbacks.append(on_collection)
        context.undo.call(lambda: gc.callbacks.remove(on_collection))

    def remove(self) -> None:
        pass


SIGNAL = GarbageSignal
