"""Count the calls of a model, or the batches of a loader, while nothing trains, on the recorded thread."""

from __future__ import annotations

import sys
from collections.abc import Callable
from time import perf_counter_ns

from collector.context.steps import STALL_NS, STEPS_PER_LOOK, StepCounter
from collector.edge import log_failure
from collector.ring.codes import STALL_END, STALL_START
from collector.ring.words import WordLog

SURE_CALLS = 8
"""Number of calls or batches before any training from which the run counts as one that infers."""
MANY_CALLS = 64
"""The same for a run in which an optimizer exists."""
SHORT_NS = 50_000_000
"""Duration of STEPS_PER_LOOK calls below which `occasions` are called once for all of these calls."""


class CallCounter:
    """The count of ended calls or batches of a run that infers. The sidecar numbers its rows alike.

    `callbacks` are called with the number of each ended call, `occasions` at every sixteenth call if calls are short.
    Training ends the count for good. `in_batch` is True inside of a batch that the script marks.
    """

    def __init__(self, steps: StepCounter, log: WordLog) -> None:
        self.ended = 0
        self.in_batch = self.has_marks = False
        self.callbacks: list[Callable[[int], None]] = []
        self.occasions: list[Callable[[int], None]] = []
        self._steps, self._log = steps, log
        self._pace = 0
        self._looked_ns = perf_counter_ns()
        steps.on_batch = self.end

    @property
    def is_over(self) -> bool:
        """Whether the run trains, or marks its steps itself, so that calls are no steps of it."""
        return self._steps.has_trained or bool(self._steps.ended)

    @property
    def noun(self) -> str:
        """The noun for one of them, as pages use it."""
        return "batch" if self.has_marks or self._steps.fetches else "call"

    def end(self) -> None:
        """Note that a call or a batch has ended. Do nothing once the run trains."""
        if self.is_over:
            return
        self.ended = ended = self.ended + 1
        if self.callbacks or not ended & self._pace:
            before = perf_counter_ns()
            self._call(self.callbacks)
            if not ended & self._pace:
                self._look(ended)
            after = perf_counter_ns()
            if after - before > STALL_NS:
                self._log.write(STALL_START, before)
                self._log.write(STALL_END, after)

    def _look(self, ended: int) -> None:
        if not ended & STEPS_PER_LOOK - 1:
            now = perf_counter_ns()
            is_short = ended > SURE_CALLS * STEPS_PER_LOOK and now - self._looked_ns < SHORT_NS
            self._pace, self._looked_ns = STEPS_PER_LOOK - 1 if is_short else 0, now
            self._log.mark_head(0)
        self._call(self.occasions)

    def _call(self, callbacks: list[Callable[[int], None]]) -> None:
        for callback in tuple(callbacks):
            with log_failure("a signal failed at the end of a call"):
                callback(self.ended)


def has_optimizer() -> bool:
    """Return whether an optimizer of torch was made in this process: the first of a class marks the `step` of it."""
    optim = sys.modules.get("torch.optim")
    kinds = [] if optim is None else [optim.Optimizer]
    for kind in kinds:
        kinds += kind.__subclasses__()
    return any(getattr(kind.step, "hooked", False) for kind in kinds)
