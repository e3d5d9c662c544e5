"""Running sums of the batch that is made now (the time of its samples and of each transform), and the choice of batches
to time.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from threading import get_ident
from time import perf_counter_ns, thread_time_ns
from typing import Any

from collector.edge import hide_frame, log_failure, uncounted, unseen

UNKNOWN = -1

# Measured cost of the clocks around one sample, and around one call of a transform (with the thread's CPU clock).
_SAMPLE_COST_NS = 500
_CALL_COST_NS = 1700
BATCH_COST_NS = 25_000
"""Cost in ns of timing a batch in the training process, besides its samples and transforms, with cold caches."""
_BUDGET_FRAC = 0.01
_LONGEST_PERIOD = 64
_log = logging.getLogger("stepscope")


class Part:
    """The time of one transform in the batch that is made now, without the time of transforms that it called itself.
    But `longest_ns`, the time of its longest call, includes them; `longest_item` is the index of the sample of this
    call.
    """

    __slots__ = ("calls", "cpu_ns", "duration_ns", "longest_item", "longest_ns", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.clear()

    def clear(self) -> None:
        self.duration_ns = self.cpu_ns = self.calls = self.longest_ns = 0
        self.longest_item = UNKNOWN


class Tally:
    """The sums of the batch that is made now. `item_ns` is the time of all its samples so far, `longest_ns` that of the
    longest. `nested_ns` is the time in transforms so far. Code around a transform subtracts from its own time what the
    transform added to these sums.
    """

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
    """Wrap a transform so that its own wall and CPU time is added to `part`. Errors pass through."""

    @uncounted
    def timed(*args: Any, **kwargs: Any) -> Any:
        if get_ident() != tally.thread:  # a thread pool of the user's: its calls overlap and have no place in a sum
            with unseen:
                return raw(*args, **kwargs)
        outer_ns, outer_cpu_ns = tally.nested_ns, tally.nested_cpu_ns
        tally.nested_ns = tally.nested_cpu_ns = 0
        # Reading the CPU clock is a system call, and a busy kernel often switches threads there. That wait belongs to
        # the call that used up the time slice, so the wall clock is read outside of it.
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
    """The choice of batches whose parts are timed: all or every k-th, so that the clocks cost less than 1 % of the
    work.

    The clocks cost 1 % of a sample of 50 µs without transforms. `left` counts the batches until the next timed batch.
    """

    __slots__ = ("_batch_cost_ns", "left", "period")

    def __init__(self, batch_cost_ns: int = 0) -> None:
        self.period = 1
        self._batch_cost_ns = batch_cost_ns
        self.left = 0

    def is_due(self) -> bool:
        """Return whether to time the batch that begins now; call this once for each batch."""
        if self.left:
            self.left -= 1
            return False
        self.left = self.period - 1
        return True

    def learn(self, work_ns: int, samples: int, calls: int) -> None:
        """Choose the interval of timed batches from the last one: its work in ns, samples, calls of transforms."""
        if samples > 0 and work_ns > 0:
            cost_ns = self._batch_cost_ns + samples * _SAMPLE_COST_NS + calls * _CALL_COST_NS
            wanted = math.ceil(cost_ns / (_BUDGET_FRAC * work_ns))
            self.period = min(max(wanted, 1), _LONGEST_PERIOD)
            self.left = self.period - 1


class Guard:
    """A guard for our own code: `run` logs the first exception, calls `give_up`, and runs nothing more."""

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
            # Its removal may fail for the same reason.
            with log_failure("%s could not be left clean", self._what):
                self._give_up(error)
