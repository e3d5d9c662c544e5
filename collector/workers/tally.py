"""The running sums of one batch: what the samples took, what each transform took of it, and when to look that closely."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from threading import get_ident
from time import perf_counter_ns, thread_time_ns
from typing import Any

from collector.edge import hide_frame, log_failure, unseen

UNKNOWN = -1

# Measured cost of the clocks around one sample, and around one call of a transform (with the thread's CPU clock).
_SAMPLE_COST_NS = 500
_CALL_COST_NS = 1700
BATCH_COST_NS = 25_000
"""All that is done for a timed batch besides, in the process that trains, where nothing of it is in the caches."""
_BUDGET_FRAC = 0.01
_LONGEST_PERIOD = 64
_log = logging.getLogger("stepscope")


class Part:
    """What one transform took in the batch, without the transforms that it called itself."""

    __slots__ = ("calls", "cpu_ns", "duration_ns", "longest_item", "longest_ns", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.clear()

    def clear(self) -> None:
        self.duration_ns = self.cpu_ns = self.calls = self.longest_ns = 0
        self.longest_item = UNKNOWN


class Tally:
    """`nested_ns` is the time inside transforms so far: what a caller subtracts to be left with its own."""

    __slots__ = ("item", "item_ns", "longest_item", "longest_ns", "nested_cpu_ns", "nested_ns", "thread")

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.item_ns = self.longest_ns = self.nested_ns = self.nested_cpu_ns = 0
        self.item = self.longest_item = UNKNOWN
        self.thread = get_ident()

    def add_item(self, took_ns: int) -> None:
        self.item_ns += took_ns
        if took_ns > self.longest_ns:
            self.longest_ns = took_ns
            self.longest_item = self.item


def time_calls(raw: Callable[..., Any], part: Part, tally: Tally) -> Callable[..., Any]:
    """Wrap a transform so that its own time, wall and CPU, goes to its part. Errors pass through."""

    def timed(*args: Any, **kwargs: Any) -> Any:
        if get_ident() != tally.thread:  # a thread pool of the user's: its calls overlap and have no place in a sum
            with unseen:
                return raw(*args, **kwargs)
        outer_ns, outer_cpu_ns = tally.nested_ns, tally.nested_cpu_ns
        tally.nested_ns = tally.nested_cpu_ns = 0
        # The CPU clock is a system call, and a busy kernel likes to switch there: that wait belongs to the call that
        # used up the time slice, so the wall clock is read outside of it.
        start_ns = perf_counter_ns()
        cpu_start_ns = thread_time_ns()
        try:
            return raw(*args, **kwargs)
        except BaseException as error:
            hide_frame(error)
            raise
        finally:
            cpu_ns = thread_time_ns() - cpu_start_ns
            took_ns = perf_counter_ns() - start_ns
            part.duration_ns += took_ns - tally.nested_ns
            part.cpu_ns += cpu_ns - tally.nested_cpu_ns
            part.calls += 1
            if took_ns > part.longest_ns:
                part.longest_ns = took_ns
                part.longest_item = tally.item
            tally.nested_ns = outer_ns + took_ns
            tally.nested_cpu_ns = outer_cpu_ns + cpu_ns

    return timed


class Rhythm:
    """Which batches to time inside: all, or every k-th so that the clocks stay below one percent of the work.

    A sample without transforms reaches that at 50 µs. `left` batches more are not to be timed.
    """

    __slots__ = ("_batch_cost_ns", "left", "period")

    def __init__(self, batch_cost_ns: int = 0) -> None:
        self.period = 1
        self._batch_cost_ns = batch_cost_ns
        self.left = 0

    def is_due(self) -> bool:
        """Say whether to time the batch that begins now."""
        if self.left:
            self.left -= 1
            return False
        self.left = self.period - 1
        return True

    def learn(self, work_ns: int, samples: int, calls: int) -> None:
        """Set the period from a batch that was timed: its work, its samples and the calls of transforms."""
        if samples > 0 and work_ns > 0:
            cost_ns = self._batch_cost_ns + samples * _SAMPLE_COST_NS + calls * _CALL_COST_NS
            wanted = math.ceil(cost_ns / (_BUDGET_FRAC * work_ns))
            self.period = min(max(wanted, 1), _LONGEST_PERIOD)
            self.left = self.period - 1


class Guard:
    """Runs steps of our own code. The first that raises is logged, `give_up` is told, and nothing runs any more."""

    def __init__(self, what: str, give_up: Callable[[Exception], None]) -> None:
        self._what = what
        self._give_up = give_up
        self._is_on = True

    def run(self, step: Callable[..., Any], *args: Any) -> None:
        if not self._is_on:
            return
        try:
            step(*args)
        except Exception as error:  # noqa: BLE001  an edge: a clock that fails is taken away, the training goes on
            self._is_on = False
            _log.warning("stepscope: %s is not profiled any more: %r", self._what, error)
            # Taking it away may fail for the same reason.
            with log_failure("%s could not be left clean", self._what):
                self._give_up(error)
