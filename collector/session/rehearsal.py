"""Measure what the hooks cost the training thread, during the training itself, for the overhead that a run states.

Now and then, between two steps, one hook is called around nothing and timed. A hook in a real step runs after the
model's work, when the caches hold other data. So the caches are first filled with other data. The amount of data was
chosen so that the result agrees with interleaved blocks with and without a recording (benchmarks/light_mode.py).
Detailed windows are not included: their cost is timed separately.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from threading import get_ident
from typing import Any

from collector.context.signals import SignalContext
from collector.format.schema.removal import remove_file
from collector.ring.words import WordLog

_SCRATCH_WORDS = 1 << 12
FILLER_BYTES = 1 << 20
FIRST_STEP = 12
"""First step after which a hook is timed; earlier steps are slower, and so are their hooks."""
EARLY_CALLS = 60
EARLY_NS, LATER_NS = 5_000_000, 100_000_000
"""The least ns between two timed calls, for the first calls and for later calls: the training must not be slowed."""
LATER_STEPS = 16
LEAST_CALLS = 2
"""Least calls of every hook before any figure is given."""
MOST_CALLS = 1000
"""The number of last calls of each hook that are kept."""


class CostSampler:
    """A sampler of hook costs. Call `sample` on the training thread when a step has ended."""

    def __init__(self, kinds: tuple[Any, ...], context: SignalContext) -> None:
        """Prepare the hooks of each signal for timing. Raise OSError if there is no room for a log."""
        scratch = context.events / "rehearsal.ring"
        try:
            self._log = WordLog(scratch, _SCRATCH_WORDS, shared=True)
        finally:
            remove_file(scratch)
        stage = SignalContext(context.rank_folder, context.options, self._log, context.notes)
        self._calls: dict[str, Callable[[], object]] = {"nothing": _do_nothing}
        for kind in kinds:
            if hasattr(kind, "rehearse"):
                self._calls |= kind().rehearse(stage)
        self._names = tuple(self._calls)
        self._times: dict[str, list[int]] = {name: [] for name in self._names}
        self._taken = 0
        self._next_step, self._next_ns = FIRST_STEP, 0
        self._filler = bytearray(FILLER_BYTES)
        self._run_log = context.log

    def sample(self, step: int) -> bool:
        """Time one hook, if it is due after this step. Return whether `describe` should be saved now."""
        begun = time.perf_counter_ns()
        if begun < self._next_ns or not self._run_log.is_mine():
            return False
        if 0 < self._next_step - step <= LATER_STEPS:  # more only where calls were counted, and the training begins now
            return False
        name = self._names[self._taken % len(self._names)]
        call, times = self._calls[name], self._times[name]
        self._log.thread[0] = get_ident()
        bytes(self._filler)
        before = time.perf_counter_ns()
        call()
        after = time.perf_counter_ns()
        times.append(after - before)
        del times[:-MOST_CALLS]
        self._taken += 1
        is_early = self._taken < EARLY_CALLS
        self._next_step = step + (1 if is_early else LATER_STEPS)
        self._next_ns = after + (EARLY_NS if is_early else LATER_NS)
        # Powers of two of rounds: a run that is killed has a figure, and few are written.
        rounds, rest = divmod(self._taken, len(self._names))
        return not rest and rounds >= LEAST_CALLS and not rounds & (rounds - 1)

    def describe(self) -> dict[str, Any]:
        """Return `hook_ns` ([median, low, high] in ns of each hook) and `how` (the method); {} before enough calls."""
        if min(len(times) for times in self._times.values()) < LEAST_CALLS:
            return {}
        nothing = statistics.median(self._times["nothing"])
        timed = {
            name: [max(value - nothing, 0.0) for value in _bound_median(times)]
            for name, times in self._times.items()
            if name != "nothing"
        }
        count = min(len(times) for times in self._times.values())
        return {
            "hook_ns": timed,
            "how": f"each hook was timed {count:,} times in this run, and its median counts for each of its calls",
        }

    def close(self) -> None:
        self._calls.clear()
        self._log.close()


def _bound_median(times: list[int]) -> tuple[float, float, float]:
    """Return the median, and the lower and upper bound of its 95 % interval."""
    ranked = sorted(times)
    half = 0.98 * len(ranked) ** 0.5
    middle = (len(ranked) - 1) / 2
    low, high = max(int(middle - half), 0), min(int(middle + half + 1), len(ranked) - 1)
    return statistics.median(ranked), ranked[low], ranked[high]


def _do_nothing() -> None:
    pass
