"""From calls to the figures of benchmark.json: the tree of times, means over batches, statistics. Milliseconds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from collector.launch.benchmark.calls import Call, Calls

NS_PER_MS = 1_000_000
Tree = dict[str, Any]
Figures = dict[str, float | int | None]
_PERCENTILES = {"percentile_16": 16, "percentile_84": 84, "percentile_95": 95}


@dataclass(frozen=True)
class Sample:
    """One figure of one call, and the items that it stands for."""

    value_ms: float
    items: int


Samples = dict[str, dict[str, list[Sample]]]
"""Range -> metric -> samples."""


def build_data(calls: Calls) -> Tree:
    """Return the tree of every call; a batch is a child named `<range>_<batch_idx>`, a repeated name gets `#2`, `#3` …"""
    return _describe(_wrap(calls), calls.kept)


def build_means(calls: Calls) -> Tree:
    """Return the same tree with all batches of a range in one: means over those that count."""
    return _average([_wrap(calls)], calls.kept)


def collect_samples(calls: Calls) -> Samples:
    """Return what is measured without the warm-up: batches that are kept, what is in them, and what is in no batch."""
    samples: Samples = {}
    for call, items in _walk_kept(calls.roots, calls.kept, 0):
        figures = _measure(call)
        if call.batches:
            totals = _sum_batches(call, calls.kept)
            figures = {"cpu_time": totals["cpu_time_minus_warmup"], "gpu_time": totals["gpu_time_minus_warmup"]}
            items = int(totals["total_items_minus_warmup"] or 0)
        for metric, value in figures.items():
            if value is not None and metric != "total_items":
                samples.setdefault(call.path, {}).setdefault(metric, []).append(Sample(value, items))
    return samples


def summarize_samples(samples: Samples) -> dict[str, dict[str, Figures]]:
    """Return the statistics per range and metric. The standard deviation is that of the population."""
    return {path: {metric: _summarize(found) for metric, found in metrics.items()} for path, metrics in samples.items()}


def join_samples(several: Iterable[Samples]) -> Samples:
    """Pool the samples of several processes."""
    joined: Samples = {}
    for samples in several:
        for path, metrics in samples.items():
            for metric, found in metrics.items():
                joined.setdefault(path, {}).setdefault(metric, []).extend(found)
    return joined


def average_trees(trees: Sequence[Tree]) -> Tree:
    """Return the mean of each number over the trees that have it."""
    mean: Tree = {}
    for key in dict.fromkeys(key for tree in trees for key in tree):
        values = [tree[key] for tree in trees if tree.get(key) is not None]
        inner = [value for value in values if isinstance(value, dict)]
        mean[key] = average_trees(inner) if inner else _mean(values)
    return mean


def _wrap(calls: Calls) -> Call:
    """Return a call around the outermost ones; its time is theirs."""
    known = [call.device_ns for call in calls.roots if call.device_ns is not None]
    first = calls.roots[0].start_ns if calls.roots else 0
    total = sum(call.duration_ns for call in calls.roots)
    return Call("", "", first, total, sum(known) if known else None, children=calls.roots)


def _describe(call: Call, kept: frozenset[Call]) -> Tree:
    node: Tree = dict(_measure(call)) if call.name else {}
    if call.batches:
        node |= _measure(call) | _sum_batches(call, kept)
    if call.failed:
        node["failed"] = True
    for key, child in _name_calls(call.children, _name_batch, set(node)):
        node[key] = _describe(child, kept)
    return node


def _average(calls: list[Call], kept: frozenset[Call]) -> Tree:
    rows = [_measure(call) | (_sum_batches(call, kept) if call.batches else {}) for call in calls]
    is_outermost = not calls[0].name and not calls[0].batches
    names = [] if is_outermost else list(dict.fromkeys(name for row in rows for name in row))
    node: Tree = {name: _mean([row[name] for row in rows if row.get(name) is not None]) for name in names}
    groups: dict[str, list[Call]] = {}
    for call in calls:
        counted = [child for child in call.children if child.is_counted]
        for key, child in _name_calls([child for child in counted if child.batch is None], _name_range, set(node)):
            groups.setdefault(key, []).append(child)
        for child in counted:
            if child.batch is not None:
                groups.setdefault(child.name, []).append(child)
    return node | {key: _average(members, kept) for key, members in groups.items()}


def _name_range(call: Call) -> str:
    return call.name


def _name_batch(call: Call) -> str:
    return call.name if call.batch is None else f"{call.name}_{call.batch}"


def _name_calls(calls: Iterable[Call], name: Callable[[Call], str], taken: set[str]) -> Iterator[tuple[str, Call]]:
    """Yield the calls with names of their own: no two calls share one, and none has that of a figure."""
    for call in calls:
        key, number = name(call), 2
        while key in taken:
            key, number = f"{name(call)}#{number}", number + 1
        taken.add(key)
        yield key, call


def _measure(call: Call) -> Figures:
    cpu, gpu = call.duration_ns / NS_PER_MS, _to_ms(call.device_ns)
    figures: Figures = {"cpu_time": cpu, "gpu_time": gpu}
    if call.batch is not None:
        figures |= {
            "total_items": call.items,
            "cpu_time_per_item": _divide(cpu, call.items),
            "gpu_time_per_item": _divide(gpu, call.items),
        }
    return figures


def _sum_batches(call: Call, kept: frozenset[Call]) -> Figures:
    """Return the totals of a call with batches in it: all, and less the batches that are warm-up or do not count."""
    counted = [batch for batch in call.batches if batch.is_counted]
    dropped = [batch for batch in call.batches if batch not in kept]
    left = [batch for batch in counted if batch in kept]
    items = sum(batch.items or 0 for batch in left)
    cpu = (call.duration_ns - sum(batch.duration_ns for batch in dropped)) / NS_PER_MS if left else None
    gpu = None
    if left and call.device_ns is not None and all(batch.device_ns is not None for batch in dropped):
        gpu = (call.device_ns - sum(batch.device_ns or 0 for batch in dropped)) / NS_PER_MS
    total = sum(batch.items or 0 for batch in counted)
    cpu_per_item, gpu_per_item = _divide(cpu, items), _divide(gpu, items)
    return {
        "total_items": total,
        "cpu_time_per_item": _divide(call.duration_ns / NS_PER_MS, total),
        "gpu_time_per_item": _divide(_to_ms(call.device_ns), total),
        "total_items_minus_warmup": items,
        "cpu_time_minus_warmup": cpu,
        "gpu_time_minus_warmup": gpu,
        "cpu_time_per_item_minus_warmup": cpu_per_item,
        "gpu_time_per_item_minus_warmup": gpu_per_item,
        # The same under the names of earlier versions.
        "cpu_time_minus_warmup_per_item": cpu_per_item,
        "gpu_time_minus_warmup_per_item": gpu_per_item,
    }


def _walk_kept(calls: Iterable[Call], kept: frozenset[Call], items: int) -> Iterator[tuple[Call, int]]:
    for call in calls:
        if call.failed or (call.batch is not None and call not in kept):
            continue
        own = items if call.batch is None else call.items or 0
        yield call, own
        yield from _walk_kept(call.children, kept, own)


def _summarize(samples: list[Sample]) -> Figures:
    values = np.array([sample.value_ms for sample in samples])
    figures: Figures = {
        "total_items": sum(sample.items for sample in samples),
        "count": len(samples),
        "min": float(values.min()),
        "max": float(values.max()),
        "mean": float(values.mean()),
        "std": float(values.std()),
        "median": float(np.median(values)),
    }
    return figures | {name: float(np.percentile(values, share)) for name, share in _PERCENTILES.items()}


def _to_ms(ns: int | None) -> float | None:
    return None if ns is None else ns / NS_PER_MS


def _divide(value: float | None, items: int | None) -> float | None:
    return None if value is None or not items else value / items


def _mean(values: Sequence[Any]) -> Any:
    numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    if len(numbers) < len(values):
        return values[0]
    return sum(numbers) / len(numbers) if numbers else None
