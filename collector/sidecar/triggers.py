"""When the steps of a run ask for a closer look: one far longer than usual, many that wait for data, all growing.

What is judged here is cheap on purpose: it runs beside every training.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from statistics import median, quantiles
from typing import NamedTuple

from collector.format.schema.wording import format_percent

WARM_UP = 30
"""Train steps that nothing is concluded from: compilation, caches and clocks settle."""
LONG_TIMES = 4.0
LONG_LEAST_NS = 20_000_000
"""A step this much longer than usual, at least, is worth the stall of a window."""
RECORD_TIMES = 1.5
"""So many times the longest of the recent steps: a stall that comes every hundred steps is news only once."""
STARVED_FRAC = 0.5
STARVED_STEPS = 30
STARVED_LEAST_NS = 1_000_000_000
DRIFT_TIMES = 1.3
BLOCK = 100
BLOCK_LEAST_NS = 1_000_000_000
_RECENT = 200
_LEAST_RECENT = 30
_RENEW = 20
_AFTER_WINDOW = 3
"""Steps after a detailed one that carry the cost of closing it."""


class Step(NamedTuple):
    """What is looked at of a training step. `starts_loader` is whether the workers were started in it."""

    step: int
    duration_ns: int
    data_wait_ns: int
    starts_loader: bool
    detailed: bool


@dataclass(frozen=True)
class Finding:
    """`trigger` is outlier, starvation or drift; `text` is half a sentence: "step 412 took 6.1× the median before it".

    A page judges by the median of the whole run, which nobody knows yet.
    """

    trigger: str
    step: int
    text: str


@dataclass
class _Stretch:
    """Steps one after the other that waited for data."""

    first: int = 0
    count: int = 0
    total_ns: int = 0
    wait_ns: int = 0


class StepWatch:
    """Sees every training step once, in order."""

    def __init__(self) -> None:
        self._seen = 0
        self._after_window = 0
        self._recent: deque[int] = deque(maxlen=_RECENT)
        self._median_ns = 0.0
        self._renew_in = 0
        self._starved = _Stretch()
        self._is_starved = False
        self._block: list[int] = []
        self._block_ns = 0
        self._base: tuple[float, float] | None = None
        self._growing = False

    def see(self, step: Step) -> Finding | None:
        """Take in a step; return what it shows, the most particular first."""
        self._seen += 1
        if step.detailed:
            self._after_window = _AFTER_WINDOW
            return None
        if self._after_window or self._seen <= WARM_UP or step.starts_loader:
            self._after_window = max(self._after_window - 1, 0)
            return None
        found = (self._judge_length(step), self._judge_wait(step), self._judge_drift(step))
        return next((finding for finding in found if finding), None)

    def _judge_length(self, step: Step) -> Finding | None:
        recent, usual = self._recent, self._median_ns
        duration = step.duration_ns
        is_long = (
            len(recent) >= _LEAST_RECENT
            and duration > LONG_TIMES * usual
            and duration - usual > LONG_LEAST_NS
            and duration > RECORD_TIMES * max(recent)
        )
        recent.append(duration)
        self._renew_in -= 1
        if self._renew_in < 0 or len(recent) <= _LEAST_RECENT:
            self._median_ns, self._renew_in = median(recent), _RENEW
        if not is_long:
            return None
        return Finding("outlier", step.step, f"step {step.step} took {duration / usual:.1f}× the median before it")

    def _judge_wait(self, step: Step) -> Finding | None:
        """One finding for a stretch of starved steps, however long it is."""
        if step.data_wait_ns < STARVED_FRAC * step.duration_ns:
            self._starved, self._is_starved = _Stretch(), False
            return None
        if self._is_starved:
            return None
        stretch = self._starved
        stretch.first = stretch.first or step.step
        stretch.count += 1
        stretch.total_ns += step.duration_ns
        stretch.wait_ns += step.data_wait_ns
        if stretch.count < STARVED_STEPS or stretch.total_ns < STARVED_LEAST_NS:
            return None
        self._is_starved = True
        share = stretch.wait_ns / stretch.total_ns
        text = f"steps {stretch.first} to {step.step} waited for data for {format_percent(share)} of their time"
        return Finding("starvation", step.step, text)

    def _judge_drift(self, step: Step) -> Finding | None:
        """Compare blocks of steps with the first one; two that are longer without overlap make a drift."""
        self._block.append(step.duration_ns)
        self._block_ns += step.duration_ns
        if len(self._block) < BLOCK or self._block_ns < BLOCK_LEAST_NS:
            return None
        low, middle, high = quantiles(self._block, n=4)
        self._block, self._block_ns = [], 0
        if self._base is None:
            self._base = middle, high
            return None
        usual, upper = self._base
        was_growing, self._growing = self._growing, middle > DRIFT_TIMES * usual and low > upper
        if not (was_growing and self._growing):
            return None
        self._base, self._growing = (middle, high), False
        return Finding("drift", step.step, f"the median step before step {step.step} had grown {middle / usual:.1f}×")
