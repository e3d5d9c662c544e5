"""How much faster a benchmark is than an earlier one: speed-up = baseline / run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from collector.format.schema.errors import RunNotFoundError, TableBrokenError
from collector.launch.benchmark.documents import MEAN_FILE
from collector.launch.benchmark.figures import Tree


def read_mean(folder: Path) -> Tree:
    """Read benchmark_mean.json of a benchmark. Raises RunNotFoundError or TableBrokenError."""
    path = folder / MEAN_FILE
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        document["data_stats_minus_warmup_all_procs"].items()
    except OSError:
        raise RunNotFoundError(f"{folder} holds no {MEAN_FILE}; give the -o folder of an earlier benchmark") from None
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise TableBrokenError(f"{path} is no benchmark ({error!r}); run the benchmark again") from None
    return dict(document)


def compare_benchmarks(baseline: Tree, run: Tree) -> dict[str, dict[str, float]]:
    """Return the speed-up per range and metric, of those that both have: above 1 the run is the faster one.

    Of times it is baseline / run of the means without warm-up; of throughput, a rate, it is run / baseline.
    """
    before, after = (document["data_stats_minus_warmup_all_procs"] for document in (baseline, run))
    speed_up: dict[str, dict[str, float]] = {}
    for path in after:
        for metric, figures in after[path].items():
            old, new = _read_value(before.get(path, {}).get(metric)), _read_value(figures)
            if old and new:
                speed_up.setdefault(path, {})[metric] = new / old if metric == "throughput" else old / new
    return speed_up


def format_speed_up(speed_up: dict[str, dict[str, float]]) -> str:
    """Return a table for a terminal."""
    if not speed_up:
        return "The two benchmarks have no range in common."
    rows = [(path, metric, f"{value:.3f}") for path, metrics in speed_up.items() for metric, value in metrics.items()]
    header = ("range", "metric", "speed-up")
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(3)]
    lines = [f"{a:<{widths[0]}}  {b:<{widths[1]}}  {c:>{widths[2]}}" for a, b, c in (header, *rows)]
    return "\n".join(lines)


def _read_value(figures: Any) -> float | None:
    value = figures.get("mean") if isinstance(figures, dict) else figures
    return float(value) if isinstance(value, int | float) else None
