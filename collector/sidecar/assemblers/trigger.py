"""Detailed windows (steps recorded with torch.profiler) that open by themselves. This module watches the new rows of
`steps` in the sidecar, and orders the windows.

The training thread opens a window between two steps, and closes it before the process ends. libkineto can also record
windows on a thread of its own, but nothing can close such a window early: a process that ended with an open window died
of SIGSEGV in the destructors of torch.

`Profiler(triggers=False)` and `window=None` both switch triggers off. The reason for each window is noted in rank.json,
`facts` → `triggers`.
"""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import pyarrow as pa

from collector.format.schema.layout import events_path
from collector.format.schema.wording import form_plural, format_percent
from collector.notes import WORDS_FILE, read_notes
from collector.ring.clock import Clock
from collector.ring.windows import Order, read_order, send_order
from collector.sidecar.assembler import Assembler

WARM_UP = 30
"""Number of training steps at the start of the run that are not judged, while compilation and caches settle."""
LONG_TIMES = 4.0
LONG_LEAST_NS = 20_000_000
"""Least excess of a step over the usual length. A smaller excess is not worth the stall of a window."""
RECORD_TIMES = 1.5
"""Factor on the longest recent step; only a longer step is an outlier. So a stall every hundred steps opens one window
only."""
STARVED_FRAC = 0.5
STARVED_STEPS = 30
STARVED_LEAST_NS = 1_000_000_000
_RECENT = 200
_LEAST_RECENT = 30
_RENEW = 20
_AFTER_WINDOW = 3
"""Number of steps after a detailed step that are not judged: they carry the cost of closing the window."""


class Step(NamedTuple):
    """A training step. `starts_loader`: workers were started in it; `detailed`: it lies in a detailed window."""

    step: int
    duration_ns: int
    data_wait_ns: int
    starts_loader: bool
    detailed: bool


@dataclass(frozen=True)
class Finding:
    """A reason to open a detailed window. `trigger` is outlier, starvation or lines; `step` is the number of the last
    step concerned.

    `text` is half a sentence, such as "step 412 took 6.1× the median before it", which is the median of the preceding
    steps. Pages show the median of the whole run.
    """

    trigger: str
    step: int
    text: str


@dataclass
class _Stretch:
    first: int = 0
    count: int = 0
    total_ns: int = 0
    wait_ns: int = 0


class StepWatch:
    """A watch for long steps, and for series of steps that mostly wait for data. `see` takes every step in order."""

    def __init__(self) -> None:
        self.noun = "step"
        self._seen = 0
        self._after_window = 0
        self._recent: deque[int] = deque(maxlen=_RECENT)
        self._median_ns = 0.0
        self._renew_in = 0
        self._starved = _Stretch()
        self._is_starved = False

    def see(self, step: Step) -> Finding | None:
        """Return a finding if the step is unusually long, else if it is the last of enough starved steps in a row."""
        self._seen += 1
        if step.detailed:
            self._after_window = _AFTER_WINDOW
            return None
        if self._after_window or self._seen <= WARM_UP or step.starts_loader:
            self._after_window = max(self._after_window - 1, 0)
            return None
        long, starved = self._judge_length(step), self._judge_wait(step)
        return long or starved

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
        return Finding(
            "outlier", step.step, f"{self.noun} {step.step} took {duration / usual:.1f}× the median before it"
        )

    def _judge_wait(self, step: Step) -> Finding | None:
        """Return one finding for each series of steps that mostly waited for data, once it is long enough."""
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
        text = f"{form_plural(self.noun)} {stretch.first} to {step.step} waited for data for {format_percent(share)} of their time"
        return Finding("starvation", step.step, text)


MOST_WINDOWS = 5
LEAST_APART_NS = 300_000_000_000
_COLUMNS = (
    *("kind", "step", "start_ns", "duration_ns", "data_wait_ns", "loader_start_ns", "detailed", "fetches", "markers"),
)
_TAKEN_AFTER = 2
"""Number of calls of `watch` with rows of `steps`, after which the training thread has surely read an order."""
_log = logging.getLogger("stepscope")


class TriggerAssembler(Assembler):
    """Orders a detailed window at each finding, at most one in five minutes and five in a run; makes no table."""

    kept = ("sent", "calls")

    def __init__(self, rank_folder: Path, clock: Clock) -> None:
        super().__init__(rank_folder, clock)
        notes = read_notes(rank_folder)
        window = notes.options.get("window", {})
        self._count = int(window.get("count", 0))
        # The window that the option asks for comes first: an order now would take its place.
        self._from_step = int(window.get("first", 0)) + self._count
        self._is_on = bool(notes.options.get("triggers", True)) and self._count > 0 and not notes.finished
        self._log_file = events_path(rank_folder) / WORDS_FILE
        self._watch = StepWatch()
        self._calls = 0
        self._sent: list[dict[str, Any]] = []
        self._last_serial = 0
        self._hold = 0
        self._misses_lines: Callable[[], bool] = lambda: False

    def attach(self, log: Path) -> None:
        self._log_file = log

    def listen(self, others: Mapping[str, Assembler]) -> None:
        stacks: Any = others.get("stacks")
        self._misses_lines = getattr(stacks, "misses_lines", self._misses_lines)

    def watch(self, table: str, rows: pa.Table) -> None:
        if not self._is_on or table != "steps":
            return
        self._see_orders()
        for row in rows.select(_COLUMNS).to_pylist():
            number = self._number(row)
            if number is None:
                continue
            waits, starts = row["data_wait_ns"], row["loader_start_ns"] > 0
            finding = self._watch.see(Step(number, row["duration_ns"], waits, starts, row["detailed"]))
            if finding is not None:
                self._order(finding, row["start_ns"] + row["duration_ns"])
        self._see_lines(rows)

    def _number(self, row: dict[str, Any]) -> int | None:
        """Return the number of a training step, or of a batch or call before any training; None for other rows."""
        if row["kind"] == "eval" and not row["step"]:
            self._calls += 1
            self._watch.noun = "batch" if row["fetches"] or row["markers"] else "call"
            return self._calls
        if row["kind"] == "train" and self._calls:
            self._calls, self._watch = 0, StepWatch()  # what came before the training tells nothing of its steps
        return int(row["step"]) if row["kind"] == "train" else None

    def describe(self) -> dict[str, Any]:
        return {"facts": {"triggers": self._sent}} if self._sent else {}

    def _see_lines(self, rows: pa.Table) -> None:
        """Order a window, once per run, if half of the stack samples lie in lines that no window has sampled."""
        if not rows.num_rows or any(sent["trigger"] == "lines" for sent in self._sent):
            return
        step, at_ns = (rows[name][-1].as_py() for name in ("step", "start_ns"))
        step = step or self._calls
        if step >= self._from_step and self._misses_lines():
            self._order(Finding("lines", step, "no window has shown the lines that take the time"), at_ns)

    def _see_orders(self) -> None:
        """Look for a new order of the user, which no trigger replaces until the training thread has read it."""
        self._hold = max(self._hold - 1, 0)
        with contextlib.suppress(OSError):
            order = read_order(self._log_file)
            if order is not None and order.serial != self._last_serial:
                self._last_serial = order.serial
                self._hold = _TAKEN_AFTER if order.trigger == "control" else 0

    def _order(self, finding: Finding, at_ns: int) -> None:
        if self._hold or finding.step < self._from_step or len(self._sent) >= MOST_WINDOWS:
            return
        others = [sent["at_ns"] for sent in self._sent if sent["trigger"] != "lines"]
        if others and at_ns - others[-1] < LEAST_APART_NS:
            return
        try:
            waiting = read_order(self._log_file)
            if waiting is not None and waiting.last > finding.step:
                return
            send_order(self._log_file, Order(0, self._count, finding.trigger))
        except (OSError, ValueError) as error:
            _log.warning("stepscope: no detailed window for %s: %s", finding.text, error)
            return
        self._sent.append({"trigger": finding.trigger, "step": finding.step, "at_ns": at_ns, "text": finding.text})


ASSEMBLER = TriggerAssembler
