"""The thread that reads stacks, at most 50 times a second on average, as long as it takes no more than a small share of a processor."""

from __future__ import annotations

import contextlib
import logging
import os
import random
import threading
import time
from typing import NamedTuple

from collector.edge import Edge
from collector.frames.offers import Offers
from collector.frames.posting import TRAINER, Post
from collector.frames.reading import StackReader
from collector.sidecar.stack_names import NOT_THEIRS, StackBook

RATE_PER_S = 50.0
"""Samples of the training thread, and of all workers together."""
MOST_CPU_FRAC = 0.005
"""So much of the processors that the run may use is taken at most; where reading takes more there are fewer samples."""
MOST_SAMPLES = 20_000
"""Held until they are taken away."""
MOST_WORKERS = 1_000
_LOOK_S = 0.2
_FORGET_S = 60.0
_LEAST_WAIT_S = 0.002
_LATENESS_WAITS = 10.0
_CROWDED_WAIT_S = 0.1
"""Where this thread wakes up late it waits longer, up to this."""
_log = logging.getLogger("stepscope")


class Sample(NamedTuple):
    """`at_ns` is a perf_counter_ns reading, `stack` a number of the book."""

    at_ns: int
    replica: int
    loader: int
    stack: int


class StackSampler:
    """Samples until `stop`. `take` may be called by another thread than the sampling one."""

    def __init__(self, offers: Offers, book: StackBook, processors: float = 1.0) -> None:
        self._budget_frac = MOST_CPU_FRAC * max(processors, 1.0)
        self._offers = offers
        self._book = book
        self._stopping = threading.Event()
        self._samples: list[Sample] = []
        self._trainer: tuple[Post, StackReader] | None = None
        self._workers: list[tuple[Post, StackReader]] = []
        self._turn = 0
        self._looked = self._forgot = self._late_s = 0.0
        self.torn = 0
        self.problem = ""
        self._thread = threading.Thread(target=self._run, name="stepscope stacks", daemon=True)

    @property
    def refusal(self) -> str:
        """Why no stack of the training thread can be read, "" if it can."""
        return self._offers.refusal

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the sampling; what was sampled can still be taken."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(1.0)

    def take(self) -> list[Sample]:
        """Return the samples since the last call, in the order of their times."""
        taken, self._samples = self._samples, []
        return taken

    def _run(self) -> None:
        def fail(error: Exception) -> None:
            self.problem = repr(error)
            _log.warning("stepscope: stacks are not sampled any more: %r", error)

        with Edge(fail):
            _stay_behind()
            begun, used_at_start = time.monotonic(), time.thread_time()
            while True:
                wait_s = self._choose_wait(time.monotonic() - begun, used_at_start)
                asleep = time.monotonic()
                if self._stopping.wait(wait_s):
                    return
                self._note_lateness(time.monotonic() - asleep - wait_s)
                self._look()
                self._sample_all()

    def _choose_wait(self, elapsed_s: float, used_at_start: float) -> float:
        """Return how long to sleep: never the same, so that a rhythm of the training is not mistaken for its work."""
        used_s = time.thread_time() - used_at_start
        owed_s = used_s / self._budget_frac - elapsed_s - 1.0
        crowded_s = min(_LATENESS_WAITS * self._late_s, _CROWDED_WAIT_S)
        return max(random.uniform(0.5, 1.5) * max(1.0 / RATE_PER_S, crowded_s), min(owed_s, 1.0), _LEAST_WAIT_S)

    def _note_lateness(self, late_s: float) -> None:
        """Remember how late this thread wakes up: where processors are scarce, the training feels each sample."""
        self._late_s += (late_s - self._late_s) / 16

    def _look(self) -> None:
        now = time.monotonic()
        if now - self._looked < _LOOK_S:
            return
        self._looked = now
        for post, reader in self._offers.take():
            if post.replica == TRAINER:
                self._trainer = (post, reader)
            elif len(self._workers) < MOST_WORKERS:
                self._workers.append((post, reader))
        if now - self._forgot >= _FORGET_S:
            self._forgot = now
            self._book.forget()
            for _, reader in self._workers if self._trainer is None else [self._trainer, *self._workers]:
                reader.forget()

    def _sample_all(self) -> None:
        """Sample the training thread, and one of the workers in turn."""
        if self._trainer is not None and not self._sample(*self._trainer):
            self._trainer = None
        while self._workers:
            self._turn = (self._turn + 1) % len(self._workers)
            if self._sample(*self._workers[self._turn]):
                return
            del self._workers[self._turn]  # it is gone: the next one takes its turn

    def _sample(self, post: Post, reader: StackReader) -> bool:
        """Take one sample; False if the process is gone."""
        at_ns = time.perf_counter_ns()
        try:
            places = reader.read()
        except OSError:
            reader.close()
            return False
        if places is None:
            self.torn += 1
        elif len(self._samples) < MOST_SAMPLES:
            number = self._book.number(reader, places)
            if number != NOT_THEIRS:
                self._samples.append(Sample(at_ns, post.replica, post.loader, number))
        return True


def _stay_behind() -> None:
    """Let this thread never take a processor away when it wakes up: it waits for the end of a time slice."""
    with contextlib.suppress(OSError, AttributeError):  # AttributeError: not on Linux
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
