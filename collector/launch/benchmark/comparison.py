"""Compute the speed-up of a benchmark over an earlier one with its uncertainty, and say what else differs."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, variance
from typing import Any

from collector.format.noise import quantile_of_t
from collector.format.schema.errors import RunNotFoundError, TableBrokenError
from collector.launch.benchmark.documents import MEAN_FILE
from collector.launch.benchmark.figures import Tree

_STATS = "data_stats_minus_warmup_all_procs"


@dataclass(frozen=True)
class _Figure:
    """A mean, the square of its relative standard error, and the degrees of freedom of the error. If the error is
    unknown, both are 0."""

    value: float
    error_squared: float = 0.0
    freedom: int = 0


def read_mean(folder: Path) -> Tree:
    """Read benchmark_mean.json of a benchmark. Raises RunNotFoundError or TableBrokenError."""
    path = folder / MEAN_FILE
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        document[_STATS].items()
    except OSError:
        raise RunNotFoundError(f"{folder} holds no {MEAN_FILE}; give the -o folder of an earlier benchmark") from None
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise TableBrokenError(f"{path} is no benchmark ({error!r}); run the benchmark again") from None
    return dict(document)


def compare_benchmarks(baseline: Tree, run: Tree) -> Tree:
    """Compare the ranges and metrics that both benchmarks have: `ranges` holds speed-ups, `intervals` their 95 %
    intervals (None if unknown), `warnings` doubts about the comparison.

    For times the speed-up is baseline / run of the means without warm-up; for throughput, a rate, it is run / baseline.
    The interval belongs to the ratio of two means. If both benchmarks have several processes, it is computed from the
    means of processes, which run independently; otherwise from the batches. Variation between starts of the benchmark
    is not included.
    """
    ranges: Tree = {}
    intervals: Tree = {}
    for path, metrics in run[_STATS].items():
        for metric in metrics:
            old, new = _read_pair(baseline[_STATS].get(path, {}), metrics, metric)
            if old is not None and new is not None:
                ratio = new.value / old.value if metric == "throughput" else old.value / new.value
                ranges.setdefault(path, {})[metric] = ratio
                intervals.setdefault(path, {})[metric] = _find_interval(ratio, old, new)
    return {"ranges": ranges, "intervals": intervals, "warnings": list(_find_differences(baseline, run))}


def format_speed_up(speed_up: Tree) -> str:
    """Return the result of `compare_benchmarks` as a table for a terminal."""
    if not speed_up["ranges"]:
        return "The two benchmarks have no range in common."
    rows = [("range", "metric", "speed-up", "95 %", "")]
    for path, metrics in speed_up["ranges"].items():
        for metric, value in metrics.items():
            interval = speed_up["intervals"][path][metric]
            rows.append((path, metric, f"{value:.3f}", *_format_interval(interval)))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = [f"{a:<{widths[0]}}  {b:<{widths[1]}}  {c:>{widths[2]}}  {d:<{widths[3]}}  {e}" for a, b, c, d, e in rows]
    note = (
        "The interval is that of these two benchmarks; only repeating them shows how much results vary from run to run."
    )
    return "\n".join([*(line.rstrip() for line in lines), note])


def _format_interval(interval: Any) -> tuple[str, str]:
    if interval is None:
        return "unknown", "measured once"
    low, high = interval
    return f"{low:.3f} to {high:.3f}", "within the noise" if low <= 1 <= high else ""


def _read_pair(before: Tree, after: Tree, metric: str) -> tuple[_Figure | None, _Figure | None]:
    """Return a metric of both benchmarks, with errors from the means of processes if both have several, else from
    batches."""
    for by_process in (True, False):
        old, new = (_read_figure(figures, metric, by_process) for figures in (before, after))
        if old is None or new is None or (old.freedom and new.freedom):
            return old, new
    return old, new


def _read_figure(metrics: Tree, metric: str, by_process: bool) -> _Figure | None:
    """Return a metric with its error, from the means of processes or from batches; None if it is missing or 0."""
    figures = metrics.get(metric)
    if not isinstance(figures, dict):
        figures = {"mean": figures, "process_means": metrics.get(f"{metric}_per_process")}
    value = figures.get("mean")
    if not isinstance(value, int | float) or isinstance(value, bool) or not value:
        return None
    if by_process:
        parts = figures.get("process_means")
        if not isinstance(parts, list) or len(parts) < 2 or not fmean(parts):
            return _Figure(float(value))
        return _Figure(float(value), variance(parts) / len(parts) / fmean(parts) ** 2, len(parts) - 1)
    count, std = figures.get("count"), figures.get("std")
    if not count or count < 2 or std is None:
        return _Figure(float(value))
    return _Figure(float(value), (std / value) ** 2 / (count - 1), count - 1)  # std is that of the population


def _find_interval(ratio: float, old: _Figure, new: _Figure) -> list[float] | None:
    if not old.freedom or not new.freedom:
        return None
    margin = quantile_of_t(min(old.freedom, new.freedom)) * math.sqrt(old.error_squared + new.error_squared)
    return [ratio * math.exp(-margin), ratio * math.exp(margin)]


def _find_differences(baseline: Tree, run: Tree) -> Iterator[str]:
    before, after = baseline.get("meta", {}), run.get("meta", {})
    old, new = len(before.get("processes", ())), len(after.get("processes", ()))
    if old != new:
        yield (
            f"the baseline ran {old} and this benchmark {new} processes: they share the machine, so neither times nor "
            "throughput tell which program is faster; run both with the same -np and -ng"
        )
    dropped = before.get("warmup_batches"), after.get("warmup_batches")
    if dropped[0] != dropped[1]:
        yield f"the baseline leaves out {dropped[0]} and this benchmark {dropped[1]} batches at each end; give both the same -w"
    if _list_devices(before) != _list_devices(after):
        yield f"the devices differ: {_list_devices(before)} in the baseline, {_list_devices(after)} here"


def _list_devices(meta: Tree) -> str:
    names = {name for one in meta.get("per_process", {}).values() for name in one["device"]["names"]}
    return ", ".join(sorted(names)) or "unknown"
