"""Read the ranges of a run as a tree of calls, and compute of them the figures of benchmark.json in milliseconds.

In a script without ranges, the training steps are the batches.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from collector.format.run import RankRun
from collector.format.schema.errors import RunError

NS_PER_MS = 1_000_000
Tree = dict[str, Any]
_STATISTICS: Mapping[str, Callable[[Any], Any]] = {
    "min": np.min,
    "max": np.max,
    "mean": np.mean,
    "std": np.std,
    "median": np.median,
}
_PERCENTILES = {"percentile_16": 16, "percentile_84": 84, "percentile_95": 95}


@dataclass(frozen=True, eq=False)
class Call:
    """One call of a range, a row of `ranges`. `path` lists the names from the outermost inwards, without batch numbers.
    `device_ns` is None if the time on the device is unknown, `batch` None if the range is no batch, `total_items` None
    if the items of the batch were not counted. `children` are the calls directly inside.
    """

    name: str
    path: str
    start_ns: int
    duration_ns: int
    device_ns: int | None = None
    batch: int | None = None
    total_items: int | None = None
    failed: bool = False
    children: tuple[Call, ...] = ()

    @property
    def is_counted(self) -> bool:
        """Whether means include the call. They leave out failed calls, and the last batch of a loop, which only finds
        that no data is left.
        """
        return not self.failed and not (self.batch is not None and self.total_items == 0)

    @property
    def batches(self) -> list[Call]:
        return [child for child in self.children if child.batch is not None]

    def walk(self) -> Iterator[Call]:
        """Yield this call and all calls inside it."""
        yield self
        for child in self.children:
            yield from child.walk()


@dataclass(frozen=True)
class Calls:
    """The outermost calls of a run. Of each range, the first and last `warmup` batches are warm-up. `source` is the
    table that the calls were read from, "ranges" or "steps"."""

    roots: tuple[Call, ...]
    warmup: int
    source: str = "ranges"

    @cached_property
    def batches(self) -> list[Call]:
        """All batches of the run at any depth, warm-up and failed ones included, in time order."""
        found = [call for root in self.roots for call in root.walk() if call.batch is not None]
        return sorted(found, key=lambda call: call.start_ns)

    @cached_property
    def kept(self) -> frozenset[Call]:
        """The batches without warm-up: of n counted batches of a range, batch i (from 0) is kept if warmup <= i < n -
        warmup.
        """
        by_path: dict[str, list[Call]] = defaultdict(list)
        for call in self.batches:
            if call.is_counted:
                by_path[call.path].append(call)
        return frozenset(call for calls in by_path.values() for call in calls[self.warmup : len(calls) - self.warmup])


class Sample(NamedTuple):
    """One figure of one call. `metric` is its key in benchmark.json, such as "cpu_time". `items` is the number of items
    (samples of data) that the call processed."""

    path: str
    metric: str
    value_ms: float
    items: int


def read_calls(rank: RankRun, warmup: int) -> Calls:
    """Read the ranges of a run, or its training steps if the run has no ranges. RunError if it has neither."""
    try:
        rows = rank.table("ranges").to_pylist()
    except RunError:
        rows = []
    if rows:
        return Calls(build_calls(rows), warmup)
    steps = rank.table("steps", ("kind", "step", "start_ns", "duration_ns", "samples")).to_pylist()
    roots = (
        Call("step", "step", row["start_ns"], row["duration_ns"], batch=row["step"] - 1, total_items=row["samples"])
        for row in steps
        if row["kind"] == "train"
    )
    return Calls(tuple(roots), warmup, "steps")


def build_calls(rows: list[dict[str, Any]]) -> tuple[Call, ...]:
    """Build the tree of calls from rows of `ranges`, each level in time order."""
    columns = [name for name in Call.__dataclass_fields__ if name != "children"]
    inside: dict[tuple[Any, Any] | None, list[dict[str, Any]]] = defaultdict(list)
    known = {(row.get("process"), row["id"]) for row in rows}
    for row in sorted(rows, key=lambda row: (row["start_ns"], row["id"])):
        parent = (row.get("process"), row["parent"])
        inside[parent if parent in known else None].append(row)

    def build(key: tuple[Any, Any] | None) -> tuple[Call, ...]:
        return tuple(
            Call(**{name: row[name] for name in columns}, children=build((row.get("process"), row["id"])))
            for row in inside.get(key, ())
        )

    return build(None)


def build_data(calls: Calls) -> Tree:
    """Return the tree of all calls. A batch is a child named `<range>_<batch_idx>`; a repeated name gets `#2`, `#3` …"""
    return _describe(_wrap(calls), calls.kept)


def build_means(calls: Calls) -> Tree:
    """Return the tree of `build_data` with all batches of a range merged: means over the counted batches."""
    return _average([_wrap(calls)], calls.kept)


def collect_samples(calls: Calls) -> list[Sample]:
    """Return the figures of all calls but those of warm-up: of kept batches, calls inside them, and calls outside any
    batch. Failed calls are left out."""
    return [
        Sample(call.path, metric, value, items)
        for call, items in _walk_kept(calls.roots, calls.kept, 0)
        for metric, value in _measure_kept(call, calls.kept).items()
        if value is not None
    ]


def summarize_samples(samples: Iterable[Sample]) -> dict[str, Tree]:
    """Return {path of range: {metric: statistics}} of the samples. The standard deviation is that of a population."""
    groups: dict[tuple[str, str], list[Sample]] = defaultdict(list)
    for sample in samples:
        groups[sample.path, sample.metric].append(sample)
    found: dict[str, Tree] = defaultdict(dict)
    for (path, metric), group in groups.items():
        values = np.array([sample.value_ms for sample in group])
        found[path][metric] = {
            "total_items": sum(sample.items for sample in group),
            "count": len(group),
            **{name: float(function(values)) for name, function in _STATISTICS.items()},
            **{name: float(np.percentile(values, share)) for name, share in _PERCENTILES.items()},
        }
    return dict(found)


def average_trees(trees: Sequence[Tree]) -> Tree:
    """Return the mean of each number over the trees that contain it. Other values are taken from the first such tree."""
    mean: Tree = {}
    for key in dict.fromkeys(key for tree in trees for key in tree):
        values = [tree[key] for tree in trees if tree.get(key) is not None]
        inner = [value for value in values if isinstance(value, dict)]
        mean[key] = average_trees(inner) if inner else _mean(values)
    return mean


def _wrap(calls: Calls) -> Call:
    """Return a call around the outermost calls; its time is the sum of their times."""
    known = [call.device_ns for call in calls.roots if call.device_ns is not None]
    total = sum(call.duration_ns for call in calls.roots)
    return Call("", "", 0, total, sum(known) if known else None, children=calls.roots)


def _describe(call: Call, kept: frozenset[Call]) -> Tree:
    node = _measure(call, kept) if call.name or call.batches else {}
    if call.failed:
        node["failed"] = True
    for child in call.children:
        name = child.name if child.batch is None else f"{child.name}_{child.batch}"
        node[_free_name(name, node)] = _describe(child, kept)
    return node


def _average(calls: list[Call], kept: frozenset[Call]) -> Tree:
    rows = [_measure(call, kept) for call in calls if call.name or call.batches]
    node: Tree = average_trees(rows)
    groups: dict[str, list[Call]] = defaultdict(list)
    for call in calls:
        taken = set(node)
        for child in sorted(call.children, key=lambda child: child.batch is not None):
            if not child.is_counted:
                continue
            key = _free_name(child.name, taken) if child.batch is None else child.name
            if child.batch is None:
                taken.add(key)
            groups[key].append(child)
    return node | {key: _average(members, kept) for key, members in groups.items()}


def _free_name(name: str, taken: Iterable[str]) -> str:
    """Return the name, with a number appended if it is already taken."""
    key, number = name, 2
    while key in taken:
        key, number = f"{name}#{number}", number + 1
    return key


def _measure(call: Call, kept: frozenset[Call]) -> Tree:
    """Return the times of a call in ms. For a batch add its items and times per item; for a call around batches add
    these figures of all batches, with and without warm-up."""
    cpu, gpu = call.duration_ns / NS_PER_MS, None if call.device_ns is None else call.device_ns / NS_PER_MS
    figures: Tree = {"cpu_time": cpu, "gpu_time": gpu}
    if call.batch is None and not call.batches:
        return figures
    items = call.total_items
    if call.batches:
        items = sum(batch.total_items or 0 for batch in call.batches if batch.is_counted)
    figures |= {
        "total_items": items,
        "cpu_time_per_item": _divide(cpu, items),
        "gpu_time_per_item": _divide(gpu, items),
    }
    return figures | _measure_batches(call, kept) if call.batches else figures


def _measure_batches(call: Call, kept: frozenset[Call]) -> Tree:
    dropped = [batch for batch in call.batches if batch not in kept]
    left = [batch for batch in call.batches if batch in kept]
    items = sum(batch.total_items or 0 for batch in left)
    cpu = (call.duration_ns - sum(batch.duration_ns for batch in dropped)) / NS_PER_MS if left else None
    gpu = None
    if left and call.device_ns is not None and all(batch.device_ns is not None for batch in dropped):
        gpu = (call.device_ns - sum(batch.device_ns or 0 for batch in dropped)) / NS_PER_MS
    return {
        "total_items_minus_warmup": items,
        "cpu_time_minus_warmup": cpu,
        "gpu_time_minus_warmup": gpu,
        "cpu_time_per_item_minus_warmup": _divide(cpu, items),
        "gpu_time_per_item_minus_warmup": _divide(gpu, items),
        # The same values under the names of earlier versions.
        "cpu_time_minus_warmup_per_item": _divide(cpu, items),
        "gpu_time_minus_warmup_per_item": _divide(gpu, items),
    }


def _walk_kept(calls: Iterable[Call], kept: frozenset[Call], items: int) -> Iterator[tuple[Call, int]]:
    for call in calls:
        if call.failed or (call.batch is not None and call not in kept):
            continue
        own = items if call.batch is None else call.total_items or 0
        yield call, sum(batch.total_items or 0 for batch in call.batches if batch in kept) if call.batches else own
        yield from _walk_kept(call.children, kept, own)


def _measure_kept(call: Call, kept: frozenset[Call]) -> Tree:
    figures = _measure(call, kept)
    if call.batches:
        return {name: figures[f"{name}_minus_warmup"] for name in ("cpu_time", "gpu_time")}
    return {name: value for name, value in figures.items() if name != "total_items"}


def _divide(value: float | None, items: int | None) -> float | None:
    return None if value is None or not items else value / items


def _mean(values: Sequence[Any]) -> Any:
    numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    if len(numbers) < len(values):
        return values[0]
    return sum(numbers) / len(numbers) if numbers else None
