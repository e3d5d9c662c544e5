"""Trials of changes on a graph: the time that each change saves, and masks that several changes need."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from collector.format.intervals import Floats, Intervals, Ints, Mask, unite
from profiler_server.analysis.replay.graph import Changes, Graph, bound_savings, measure_replay
from profiler_server.analysis.replay.window import COPY, KERNEL, OPERATOR, Window
from profiler_server.diagnosis.limits.facts import MOST_ERROR_FRAC
from profiler_server.diagnosis.limits.replay import LEAST_TRIED_FRAC
from profiler_server.facts.machine import Gain, Sighting

Change = Callable[[Changes], None]
_LEVELS = 9
_MOST_EXAMPLES, _MOST_AROUND = 3, 300
UPDATE = re.compile(r"^Optimizer\.step#")
TO_DEVICE, TO_HOST = re.compile(r"HtoD|HostToDevice", re.IGNORECASE), re.compile(r"DtoH|DeviceToHost", re.IGNORECASE)


@dataclass(frozen=True)
class Trial:
    """A graph on which changes are tried. `base_ns` is the replayed time of the unchanged graph. Lookups are cached."""

    graph: Graph
    base_ns: float

    @property
    def window(self) -> Window:
        return self.graph.window

    @property
    def is_valid(self) -> bool:
        return abs(self.base_ns / self.graph.measured_ns - 1.0) <= MOST_ERROR_FRAC

    @cached_property
    def top(self) -> Ints:
        """Return for each row the outermost operator around it, or the row itself without such an operator.

        An operator inside of a Python function counts as outermost.
        """
        window = self.window
        parent = window.parent
        inner = (parent >= 0) & (window.kind[parent] == OPERATOR)
        top = np.where(inner, parent, np.arange(len(parent)))
        for _ in range(_LEVELS):
            top = top[top]
        return top

    @cached_property
    def caller(self) -> Ints:
        """Return for each row the outermost operator that launched this device work, -1 for none."""
        launch = self.window.launch
        around = np.where(launch >= 0, self.top[launch], -1)
        return np.where((around >= 0) & (self.window.kind[around] == OPERATOR), around, -1)

    @cached_property
    def updates(self) -> Intervals:
        """Return the time ranges inside optimizer steps."""
        rows = self.window.match(UPDATE)
        return unite(self.window.start_ns[rows], self.window.end_ns[rows])

    def is_updating(self, rows: Ints) -> Mask:
        """Return a mask of those `rows` that begin inside an optimizer step."""
        return self.updates.contains(self.window.start_ns[rows])

    def list_calls(self, track: int) -> Ints:
        """Return the outermost operators of a thread in order."""
        window = self.window
        rows = np.flatnonzero((window.track == track) & (window.kind == OPERATOR))
        outer: Ints = rows[(self.top[rows] == rows) & ~window.match(_WRAPPERS)[rows]]
        return outer

    def find_work(self, callers: Ints) -> Ints:
        """Return the rows of device work that the outermost operators `callers` launched."""
        wanted = np.zeros(len(self.window.ids) + 1, bool)
        wanted[callers] = True
        return np.flatnonzero(self.window.on_device & wanted[self.caller])

    def find_copies(self, pattern: re.Pattern[str]) -> Ints:
        return np.flatnonzero((self.window.kind == COPY) & self.window.match(pattern))

    def read_args(self, rows: Ints) -> list[dict[str, object]]:
        """Return the arguments of `rows` as recorded in the trace. Each distinct text is parsed once."""
        codes = self.window.args[rows]
        read = {code: _read(self.window.texts[code]) for code in np.unique(codes[codes >= 0]).tolist()}
        return [read.get(code, {}) for code in codes.tolist()]

    def read_bytes(self, rows: Ints) -> Floats:
        """Return the size of the copy in each of `rows`, in bytes; NaN if the trace has no size."""
        found = (entry.get("bytes", entry.get("Bytes")) for entry in self.read_args(rows))
        return np.array([float(size) if isinstance(size, (int, float)) else np.nan for size in found], np.float64)

    def nodes(self, rows: Ints) -> Ints:
        found = self.graph.node_of_row[rows]
        return found[found >= 0]

    def wait_nodes(self, rows: Ints) -> Ints:
        """Return the nodes at which the calls in `rows` wait for the device."""
        waits = np.array(sorted(self.graph.awaits), np.int64)
        return waits[np.isin(self.graph.row[waits], rows)] if len(waits) else waits

    def host_of(self, callers: Ints) -> Mask:
        """Return a mask of the ranges of host time inside the outermost operators `callers`."""
        owner = self.graph.host.owner
        return (owner >= 0) & np.isin(self.top[owner], callers)

    def host_between(self, spans: Intervals) -> Mask:
        """Return a mask of the ranges of host time that begin inside the intervals `spans`."""
        return spans.contains(self.graph.host.start_ns)

    def try_change(self, low: Change, usual: Change, high: Change) -> Gain | None:
        """Return the savings of a poor, a usual and the best version of a change; None if the replay is not valid."""
        if not self.is_valid:
            return None
        measured = {change: self._measure(change) for change in {low, usual, high}}
        return Gain(*sorted(measured[change] for change in (low, usual, high)))

    def try_one(self, change: Change, least: float = 1.0) -> Gain | None:
        """Return the savings of one change; None if the replay is not valid.

        The poor version saves the share `least` of the usual savings.
        """
        found = self.try_change(change, change, change)
        return None if found is None else Gain(least * found.frac, found.frac, found.frac)

    def _measure(self, change: Change) -> float:
        changes = Changes.none(self.graph)
        change(changes)
        if bound_savings(self.graph, changes) < LEAST_TRIED_FRAC * self.base_ns:
            return 0.0
        return max(1.0 - measure_replay(self.graph, changes) / self.base_ns, 0.0)

    def sight(
        self, count: int, spent_ns: float, examples: Iterable[str], gain: Gain | None, **figures: float
    ) -> Sighting:
        """Return a sighting (an avoidable pattern and its gain). `count` and `spent_ns` are given for the whole window,
        and become means per step.
        """
        steps = self.window.steps
        return Sighting(count / steps, float(spent_ns) / steps, tuple(examples)[:_MOST_EXAMPLES], gain, figures)

    def sight_kernels(
        self, count: int, kernels: Ints, names: Iterable[str], gain: Gain | None, **figures: float
    ) -> Sighting:
        """Return a sighting of device work (an avoidable pattern). Its figure `share` is the time of `kernels` divided
        by the time of all kernels.
        """
        spent = float(self.lengths(kernels).sum())
        return self.sight(count, spent, names, gain, share=spent / max(self.kernels_ns, 1.0), **figures)

    def rank_names(self, rows: Ints, weights: Floats | Ints | None = None) -> list[str]:
        """Return the distinct names of `rows`, the largest total weight first. By default each row has weight 1."""
        codes, place = np.unique(self.window.name[rows], return_inverse=True)
        sums = np.bincount(place, weights)
        return [self.window.names[codes[at]][:100] for at in np.argsort(-sums).tolist()]

    def name_outermost(self, row: int) -> str:
        """Return the name of PyTorch's outermost operator around a row; without one, the row's own name."""
        window, found = self.window, row
        for _ in range(_MOST_AROUND):
            if row < 0:
                break
            if window.kind[row] == OPERATOR and window.names[window.name[row]].startswith("aten::"):
                found = row
            row = int(window.parent[row])
        return window.names[int(window.name[found])][:100]

    def count_steps_with(self, rows: Ints) -> int:
        window = self.window
        return len(np.unique(np.searchsorted(window.step_starts_ns, window.start_ns[rows], side="right")))

    def lengths(self, rows: Ints) -> Ints:
        return self.window.end_ns[rows] - self.window.start_ns[rows]

    @property
    def kernels_ns(self) -> float:
        """Return the time in ns of all kernels except collectives."""
        return float(self.lengths(np.flatnonzero(self.window.kind == KERNEL)).sum())


def scale(
    nodes: Ints,
    factor: float | Floats = 1.0,
    host: Mask | None = None,
    host_factor: float | Floats = 1.0,
    **flags: Ints,
) -> Change:
    """Return a change that multiplies lengths: of the device work `nodes` by `factor`, of the host time `host` by
    `host_factor`.

    `flags` maps a flag of `Changes` (unwaited, aside, skipped, joined) to the nodes that get it.
    """

    def change(changes: Changes) -> None:
        changes.device[nodes] = factor
        if host is not None:
            changes.host[host] = host_factor
        for name, chosen in flags.items():
            getattr(changes, name)[chosen] = True

    return change


_WRAPPERS = re.compile(r"^(record_param_comms|autograd::engine|Optimizer\.|DistributedDataParallel)")


def _read(text: str | None) -> dict[str, object]:
    try:
        found = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
