"""Build and write the results of a benchmark: benchmark.json of each process, benchmark_mean.json of all together."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from collector.format.run import RankRun, Run
from collector.format.schema.errors import RunError
from collector.format.schema.layout import run_file
from collector.format.schema.wording import format_number_of, format_percent
from collector.format.schema.writing import replace_text
from collector.launch.benchmark.figures import (
    NS_PER_MS,
    Calls,
    Sample,
    Tree,
    average_trees,
    build_data,
    build_means,
    collect_samples,
    read_calls,
    summarize_samples,
)
from collector.sidecar.coverage_warnings import INPUT_UNSEEN, STEPS_UNSEEN

PROCESS_FILE = "benchmark.json"
MEAN_FILE = "benchmark_mean.json"
_ON_STEPS = (STEPS_UNSEEN, INPUT_UNSEEN)
_METHOD = {"measurement_unit": "milliseconds", "std": "population", "percentiles": "linear between closest ranks"}


class Span(NamedTuple):
    """The time from the start of a range's first kept batch to the end of its last kept batch, in ns since 1970, and
    the items of all kept batches together."""

    start_ns: int
    end_ns: int
    items: int


@dataclass(frozen=True)
class Measured:
    """The measurements of one process: its benchmark.json, its samples without warm-up, and the span of each range that
    is a batch."""

    name: str
    document: Tree
    samples: Sequence[Sample]
    spans: Mapping[str, Span]


def measure_process(folder: Path, arguments: Sequence[str], warmup: int, since_unix_ns: int = 0) -> Measured:
    """Read the run in a process's folder, write its benchmark.json and return the measurements. OSError passes through.

    RunError if there is no run, or only a run older than `since_unix_ns`.
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
        "meta": _METHOD | _describe_run(run, rank, arguments) | _count_batches(calls, rank),
    }
    write_document(document, folder / PROCESS_FILE)
    return Measured(folder.name, document, samples, measure_spans(calls, run.manifest.epoch_unix_ns))


def build_mean(measured: Sequence[Measured], failed: Sequence[Tree], warmup: int) -> Tree:
    """Return benchmark_mean.json: means over the processes that ended well, and the failures of the others."""
    documents = {one.name: one.document for one in measured}
    together = join_spans([one.spans for one in measured])
    warnings = [f"{name}: {text}" for name, own in documents.items() for text in own["meta"]["warnings"]]
    warnings += [_describe_apart(path, share) for path, (_, share) in together.items() if share < 0.5]
    return {
        "mean_all_batches": average_trees([own["data"] for own in documents.values()]),
        "mean_data": average_trees([own["mean_data"] for own in documents.values()]),
        "data_stats_minus_warmup_all_procs": _summarize_processes(measured, together),
        "gpu_metrics_all_procs": {name: own["gpu_metrics"] for name, own in documents.items()},
        "meta": {
            **_METHOD,
            "throughput": "items of all processes per second, from the first kept batch's start to the last one's end",
            "coverage": f"{len(measured)} of {len(measured) + len(failed)} processes",
            "processes": list(documents),
            "failed": list(failed),
            "warmup_batches": warmup,
            "total_batches": sum(own["meta"]["total_batches"] for own in documents.values()),
            "warnings": warnings,
            "per_process": {name: own["meta"] for name, own in documents.items()},
        },
    }


def _summarize_processes(measured: Sequence[Measured], together: Mapping[str, tuple[float | None, float]]) -> Tree:
    """Return statistics over all samples of all processes, with the mean of each process. `together` maps each range
    that is a batch to the joint throughput and the share of time of `join_spans`.
    """
    stats = summarize_samples(sample for one in measured for sample in one.samples)
    own = [one.document["data_stats_minus_warmup"] for one in measured]
    for path, metrics in stats.items():
        for metric, figures in metrics.items():
            figures["process_means"] = [each[path][metric]["mean"] for each in own if metric in each.get(path, {})]
    for path, (items_per_s, _) in together.items():
        alone = [join_spans([one.spans])[path][0] for one in measured if path in one.spans]
        # The warm-up may leave batches inside of other batches, but none of the outer batches.
        stats.setdefault(path, {}).update({"throughput": items_per_s, "throughput_per_process": alone})
    return stats


def measure_spans(calls: Calls, epoch_unix_ns: int) -> dict[str, Span]:
    """Map the path of each range that is a batch to the span of its kept batches."""
    found: dict[str, Span] = {}
    for call in calls.kept:
        start_ns = epoch_unix_ns + call.start_ns
        own = Span(start_ns, start_ns + call.duration_ns, call.total_items or 0)
        past = found.get(call.path, Span(own.start_ns, own.end_ns, 0))
        first_ns, last_ns = min(own.start_ns, past.start_ns), max(own.end_ns, past.end_ns)
        found[call.path] = Span(first_ns, last_ns, own.items + past.items)
    return found


def join_spans(several: Sequence[Mapping[str, Span]]) -> dict[str, tuple[float | None, float]]:
    """Map each range that is a batch to its throughput, and to the share of time in which all processes ran batches.

    The throughput is the items of all processes per second, from the first start to the last end; None if no time has
    passed. Work between batches lowers the throughput, and so does a process that ends late.
    """
    found = {}
    for path in dict.fromkeys(path for spans in several for path in spans):
        starts, ends, items = zip(*(spans[path] for spans in several if path in spans), strict=True)
        elapsed_ns, together_ns = max(ends) - min(starts), max(min(ends) - max(starts), 0)
        found[path] = (sum(items) / (elapsed_ns / 1e9), together_ns / elapsed_ns) if elapsed_ns else (None, 1.0)
    return found


def write_document(document: Tree, path: Path) -> None:
    """Write `document` as JSON to `path`, whole or not at all. OSError passes through."""
    replace_text(path, json.dumps(document, indent=1, ensure_ascii=False) + "\n")


def _describe_apart(path: str, together_frac: float) -> str:
    return (
        f"the processes ran {path} at the same time for only {format_percent(together_frac)} of the measured time, "
        "so the throughput is lower than what they reach together; run more batches"
    )


def _describe_batches(calls: Calls) -> Tree:
    numbered: Counter[str] = Counter()
    info: Tree = {}
    for call in calls.batches:
        key = f"{call.path}_{call.batch}"
        numbered[key] += 1
        info[key if numbered[key] == 1 else f"{key}#{numbered[key]}"] = {
            "batch_idx": call.batch,
            "total_items": call.total_items,
            "is_counted": call.is_counted,
            "is_warmup": call.is_counted and call not in calls.kept,
        }
    return info


def _count_batches(calls: Calls, rank: RankRun) -> Tree:
    """Return the counts of batches, and warnings: those of the run, except on training steps, and on the warm-up."""
    total, kept = sum(call.is_counted for call in calls.batches), len(calls.kept)
    return {
        "source": calls.source,
        "total_batches": total,
        "total_batches_minus_warmup": kept,
        "warmup_batches": calls.warmup,
        "warnings": [
            *(warning.text for warning in rank.manifest.warnings if warning.code not in _ON_STEPS),
            *_warn_of_batches(total, kept, calls.warmup),
        ],
    }


def _warn_of_batches(total: int, kept: int, warmup: int) -> Iterator[str]:
    if not total:
        yield "no batches were recorded; mark them with push_range(name, batch_idx=…), or train some steps"
    elif not kept:
        spelled = format_number_of(warmup, "batch")
        yield f"a warm-up of {spelled} at each end leaves none of {total}; choose a smaller -w"


def _describe_run(run: Run, rank: RankRun, arguments: Sequence[str]) -> Tree:
    own = rank.manifest
    return {
        "versions": {name: getattr(run.manifest, name) for name in ("stepscope", "python", "torch", "cuda")},
        "device": {"names": [device.name for device in own.devices] or ["cpu"], "cores": own.usable_cores},
        "host": run.manifest.host,
        "arguments": list(arguments),
    }


def _read_gpu_metrics(rank: RankRun) -> Tree:
    """Return by GPU and metric the times (ms since the run's epoch) and values that were sampled; {} if none was."""
    try:
        rows = rank.table("resources", ("start_ns", "source", "metric", "value")).to_pylist()
    except RunError:
        return {}
    found: dict[str, dict[str, dict[str, list[Any]]]] = defaultdict(dict)
    for row in rows:
        if row["source"].startswith("gpu "):
            series = found[row["source"]].setdefault(row["metric"], {"time": [], "value": []})
            series["time"].append(row["start_ns"] / NS_PER_MS)
            series["value"].append(row["value"])
    return dict(found)
