"""benchmark.json of a process and benchmark_mean.json over all of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from collector.format.run import RankRun, Run
from collector.format.schema.errors import RunError
from collector.format.schema.layout import run_file
from collector.format.schema.wording import format_number_of, format_percent
from collector.format.schema.writing import replace_text
from collector.launch.benchmark.calls import Calls, read_calls
from collector.launch.benchmark.figures import (
    NS_PER_MS,
    Samples,
    Tree,
    average_trees,
    build_data,
    build_means,
    collect_samples,
    join_samples,
    summarize_samples,
)
from collector.sidecar.coverage_warnings import BATCHES_GUESSED, INPUT_UNSEEN, STEPS_UNSEEN

PROCESS_FILE = "benchmark.json"
MEAN_FILE = "benchmark_mean.json"
_ON_STEPS = (STEPS_UNSEEN, INPUT_UNSEEN, BATCHES_GUESSED)
_METHOD = {"measurement_unit": "milliseconds", "std": "population", "percentiles": "linear between closest ranks"}


@dataclass(frozen=True)
class ProcessResult:
    """How one process fared; `log` is what it printed, `reason` why it has no results, empty if it has."""

    process: str
    exit_code: int
    log: str
    reason: str = ""


@dataclass(frozen=True)
class Measured:
    """What one process measured. `epoch_unix_ns` puts the clocks of several processes together."""

    name: str
    document: Tree
    calls: Calls
    samples: Samples
    epoch_unix_ns: int


@dataclass(frozen=True)
class Throughput:
    """`together_frac` is the share of the time in which every process was between its first and last kept batch."""

    items_per_s: float | None
    together_frac: float


def measure_process(folder: Path, arguments: Sequence[str], warmup: int, since_unix_ns: int = 0) -> Measured:
    """Read the run in a process's folder and write its benchmark.json. OSError passes through.

    RunError if there is no run, or only one that is older than `since_unix_ns`.
    """
    run = Run(folder)
    if not run_file(folder).exists() or not run.ranks or run.manifest.created_unix_ns < since_unix_ns:
        raise RunError(f"{folder} holds no recording; its script neither imported torch nor marked a range")
    rank = run.rank()
    calls = read_calls(rank, warmup)
    samples = collect_samples(calls)
    document = {
        "data": build_data(calls),
        "mean_data": build_means(calls),
        "data_stats_minus_warmup": summarize_samples(samples),
        "batch_info": _describe_batches(calls),
        "gpu_metrics": _read_gpu_metrics(rank),
        "meta": _METHOD | _describe_run(run, arguments) | _count_batches(calls, _list_warnings(rank)),
    }
    write_document(document, folder / PROCESS_FILE)
    return Measured(folder.name, document, calls, samples, run.manifest.epoch_unix_ns)


def build_mean(measured: Sequence[Measured], results: Sequence[ProcessResult], warmup: int) -> Tree:
    """Return benchmark_mean.json: means over the processes that ended well, and the names of the others."""
    documents = [one.document for one in measured]
    stats = summarize_samples(join_samples(one.samples for one in measured))
    all_stats: Tree = {path: dict(metrics) for path, metrics in stats.items()}
    for path, metrics in all_stats.items():
        for metric, figures in metrics.items():
            figures["process_means"] = list(_average_processes(measured, path, metric))
    throughput = measure_throughput(measured)
    for path, figure in throughput.items():
        all_stats[path]["throughput"] = figure.items_per_s
        own = (measure_throughput([one]).get(path) for one in measured)
        all_stats[path]["throughput_per_process"] = [one.items_per_s for one in own if one is not None]
    covered = [one.name for one in measured]
    failed = [asdict(result) for result in results if result.reason]
    return {
        "mean_all_batches": average_trees([document["data"] for document in documents]),
        "mean_data": average_trees([document["mean_data"] for document in documents]),
        "data_stats_minus_warmup_all_procs": all_stats,
        "gpu_metrics_all_procs": {one.name: one.document["gpu_metrics"] for one in measured},
        "meta": {
            **_METHOD,
            "throughput": "items of all processes per second, from the first kept batch's start to the last one's end",
            "coverage": f"{len(covered)} of {len(results)} processes",
            "processes": covered,
            "failed": failed,
            "warmup_batches": warmup,
            "total_batches": sum(document["meta"]["total_batches"] for document in documents),
            "warnings": [
                *(f"{one.name}: {text}" for one in measured for text in one.document["meta"]["warnings"]),
                *(_describe_apart(path, figure) for path, figure in throughput.items() if figure.together_frac < 0.5),
            ],
            "per_process": {one.name: one.document["meta"] for one in measured},
        },
    }


def _average_processes(measured: Sequence[Measured], path: str, metric: str) -> Iterator[float]:
    for one in measured:
        samples = one.samples.get(path, {}).get(metric)
        if samples:
            yield fmean(sample.value_ms for sample in samples)


def measure_throughput(measured: Sequence[Measured]) -> dict[str, Throughput]:
    """Return items per second of all processes together, per range that is a batch, by the wall clock.

    Counted are the kept batches, from the start of the first to the end of the last of any process; what a process
    does between its batches lowers the figure, and so does one that ends later than the others.
    """
    found: dict[str, list[tuple[int, int, int]]] = {}
    for one in measured:
        for path in {call.path for call in one.calls.kept}:
            calls = [call for call in one.calls.kept if call.path == path]
            start = one.epoch_unix_ns + min(call.start_ns for call in calls)
            end = one.epoch_unix_ns + max(call.start_ns + call.duration_ns for call in calls)
            found.setdefault(path, []).append((start, end, sum(call.items or 0 for call in calls)))
    return {path: _join_spans(spans) for path, spans in found.items()}


def _join_spans(spans: Sequence[tuple[int, int, int]]) -> Throughput:
    """Put together the first start, the last end and the items of each process."""
    starts, ends, items = zip(*spans, strict=True)
    elapsed_ns, together_ns = max(ends) - min(starts), max(min(ends) - max(starts), 0)
    if not elapsed_ns:
        return Throughput(None, 1.0)
    return Throughput(sum(items) / (elapsed_ns / 1e9), together_ns / elapsed_ns)


def write_document(document: Tree, path: Path) -> None:
    """Write JSON, whole or not at all. OSError passes through."""
    replace_text(path, json.dumps(document, indent=1, ensure_ascii=False) + "\n")


def _describe_apart(path: str, throughput: Throughput) -> str:
    return (
        f"the processes ran {path} at the same time for only {format_percent(throughput.together_frac)} of the measured time, "
        "so the throughput is lower than what they reach together; run more batches"
    )


def _describe_batches(calls: Calls) -> Tree:
    numbered: dict[str, int] = {}
    info: Tree = {}
    for call in sorted(
        (c for root in calls.roots for c in root.walk() if c.batch is not None), key=lambda c: c.start_ns
    ):
        key = f"{call.path}_{call.batch}"
        numbered[key] = numbered.get(key, 0) + 1
        info[key if numbered[key] == 1 else f"{key}#{numbered[key]}"] = {
            "batch_idx": call.batch,
            "total_items": call.items,
            "is_counted": call.is_counted,
            "is_warmup": call.is_counted and call not in calls.kept,
        }
    return info


def _list_warnings(rank: RankRun) -> list[str]:
    """Return the warnings of a run, but those on its training steps: a benchmark counts batches."""
    return [warning.text for warning in rank.manifest.warnings if warning.code not in _ON_STEPS]


def _count_batches(calls: Calls, warnings: list[str]) -> Tree:
    total, kept = len(calls.batches), len(calls.kept)
    if total and not kept:
        warnings.append(
            f"a warm-up of {format_number_of(calls.warmup, 'batch')} at each end leaves none of {total}; choose a smaller -w"
        )
    if not total:
        warnings.append("no batches were recorded; mark them with push_range(name, batch_idx=…), or train some steps")
    return {
        "source": calls.source,
        "total_batches": total,
        "total_batches_minus_warmup": kept,
        "warmup_batches": calls.warmup,
        "warnings": warnings,
    }


def _describe_run(run: Run, arguments: Sequence[str]) -> Tree:
    manifest, rank = run.manifest, run.rank().manifest
    return {
        "versions": {
            "stepscope": manifest.stepscope,
            "python": manifest.python,
            "torch": manifest.torch,
            "cuda": manifest.cuda,
        },
        "device": {"names": [device.name for device in rank.devices] or ["cpu"], "cores": rank.usable_cores},
        "host": manifest.host,
        "arguments": list(arguments),
    }


def _read_gpu_metrics(rank: RankRun) -> Tree:
    """Return time (ms since the run's epoch) and value of every figure of every GPU that was sampled."""
    try:
        rows = rank.table("resources", ("start_ns", "source", "metric", "value")).to_pylist()
    except RunError:
        return {}
    found: dict[str, dict[str, dict[str, list[Any]]]] = {}
    for row in rows:
        if row["source"].startswith("gpu "):
            series = found.setdefault(row["source"], {}).setdefault(row["metric"], {"time": [], "value": []})
            series["time"].append(row["start_ns"] / NS_PER_MS)
            series["value"].append(row["value"])
    return dict(found)
