"""The report of a run: everything that the pages say, as one object for programs and as text for a terminal.

The keys are those of `docs/format.md`. Times are whole ns, shares are fractions, absent is None.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from collector.run import RankRun, Run
from collector.schema.errors import RunError, TableBrokenError
from collector.schema.phases import PHASES
from collector.schema.version import SCHEMA_VERSION
from profiler_server.analysis.categories import summarize_categories
from profiler_server.analysis.device import summarize_device
from profiler_server.analysis.evaluation import has_training, number_batches, summarize_evaluation
from profiler_server.analysis.interruptions import Held, read_interruptions, sum_interruptions
from profiler_server.analysis.operators import summarize_kernels, summarize_operators
from profiler_server.analysis.outliers import Outlier, explain_outlier, list_outliers
from profiler_server.analysis.pipeline import summarize_queues, summarize_stages
from profiler_server.analysis.results import DeviceSummary, Distribution, KernelRow, OperatorRow, PhaseShare
from profiler_server.analysis.steps import select_steps, summarize_phases, summarize_steps
from profiler_server.diagnosis.judging import diagnose
from profiler_server.format import format_duration, format_number_of, format_share

T = TypeVar("T")
_MOST_HELD, _MOST_SLOW = 5, 5
_F08 = {"median": 50.0, "p90": 90.0, "p95": 95.0, "p97": 97.0, "p99": 99.0, "p99.9": 99.9}


def build_report(run: Run) -> dict[str, Any]:
    """Return the object that `report --json` prints. The verdict and the suggestions are those of the first rank.

    A table that cannot be read is absent and named in `warnings`. Raises RunNotFoundError, TableBrokenError or
    NewerSchemaError if the manifests cannot be read.
    """
    warnings: list[str] = []
    ranks = [_report_rank(run.rank(rank), warnings) for rank in run.ranks]
    return {
        "schema_version": SCHEMA_VERSION,
        "run": _report_run(run),
        "ranks": ranks,
        **_report_diagnosis(run, warnings),
        "overhead": _report_overhead(run),
        "warnings": list(dict.fromkeys([*_collect_warnings(run), *warnings])),
    }


def _report_run(run: Run) -> dict[str, Any]:
    manifest = run.manifest
    devices = [device.name for rank in run.ranks for device in run.rank(rank).manifest.devices]
    created = datetime.fromtimestamp(manifest.created_unix_ns / 1e9, tz=timezone.utc)
    return {
        "id": manifest.id,
        "name": manifest.name,
        "state": run.state,
        "source": manifest.source,
        "world_size": manifest.world_size,
        "host": manifest.host,
        "created": created.isoformat(),
        "torch": manifest.torch,
        "devices": devices,
    }


def _report_rank(rank: RankRun, warnings: list[str]) -> dict[str, Any]:
    def read(build: Callable[[], T]) -> T | None:
        """Build a part of the report; a table that is not there or damaged leaves the part out and warns."""
        try:
            return build()
        except RunError as error:
            warnings.append(_warn_of(rank.rank, error))
            return None

    steps = read(lambda: read_steps(rank))
    return {
        "rank": rank.rank,
        "steps": _report_steps(steps),
        **_report_slow_steps(rank, steps),
        "phases": _report_phases(summarize_phases(steps) if steps is not None else ()),
        "categories": _report_categories(read(lambda: summarize_categories(rank))),
        "device": _report_device(read(lambda: summarize_device(rank))),
        "operators": [_report_operator(row) for row in read(lambda: summarize_operators(rank)) or ()],
        "kernels": [_report_kernel(row) for row in read(lambda: summarize_kernels(rank)) or ()],
        "queues": [dataclasses.asdict(row) for row in read(lambda: summarize_queues(rank)) or ()],
        "stages": [_round_times(dataclasses.asdict(row)) for row in read(lambda: summarize_stages(rank)) or ()],
    }


def _warn_of(rank: int, error: RunError) -> str:
    remedy = f"; run `{error.remedy}`" if isinstance(error, TableBrokenError) and error.remedy else ""
    return f"rank {rank}: {error}{remedy}"


def is_empty(report: dict[str, Any]) -> bool:
    """Say whether damage left nothing to report: no rank has a step, an operator, a queue or a stage."""
    parts = ("operators", "kernels", "queues", "stages")
    return not any(rank["steps"]["count"] or any(rank[part] for part in parts) for rank in report["ranks"])


def read_steps(rank: RankRun) -> pa.Table:
    """Read the steps of a rank; those of a run that only infers are its evaluation batches. Raises as `table` does."""
    rows = rank.table("steps")
    return rows if has_training(rows) else number_batches(rows)


def _report_steps(steps: pa.Table | None) -> dict[str, Any]:
    if steps is None:
        return {"count": 0, "first": None, "last": None, "excluded": [], "duration_ns": None}
    summary = summarize_steps(steps)
    return {
        "count": summary.count,
        "first": summary.first,
        "last": summary.last,
        "excluded": list(summary.excluded),
        "duration_ns": _report_distribution(summary.duration_ns),
    }


def _report_slow_steps(rank: RankRun, steps: pa.Table | None) -> dict[str, list[dict[str, Any]]]:
    """List the slow steps with their cause, and what held the training thread."""
    found = read_interruptions(rank)
    outliers = list_outliers(steps, interruptions=found).shown if steps is not None else ()
    return {
        "outliers": [_report_outlier(outlier) for outlier in outliers],
        "interruptions": [
            {
                "kind": entry.held.kind,
                "name": entry.held.name,
                "reason": entry.held.reason or None,
                "count": entry.count,
                "total_ns": entry.total_ns,
                "longest_ns": entry.longest_ns,
            }
            for entry in sum_interruptions(found)
        ],
    }


def _report_outlier(outlier: Outlier) -> dict[str, Any]:
    return {
        "step": outlier.step,
        "duration_ns": outlier.duration_ns,
        "ratio": outlier.ratio,
        "cause": outlier.held.kind if outlier.cause == "held" and outlier.held is not None else outlier.cause,
        "text": explain_outlier(outlier),
    }


def _report_distribution(times: Distribution | None) -> dict[str, int] | None:
    return None if times is None else {name: round(value) for name, value in dataclasses.asdict(times).items()}


def _report_phases(phases: Sequence[PhaseShare]) -> list[dict[str, Any]]:
    """Round the means so that they still sum to the rounded mean step: each takes what the ones before it left."""
    rows, exact, given = [], 0.0, 0
    for phase in phases:
        exact += phase.mean_ns
        mean = round(exact) - given
        given += mean
        rows.append({"name": phase.name, "mean_ns": mean, "share_frac": phase.share_frac})
    return rows


def _report_categories(categories: dict[str, float] | None) -> dict[str, int] | None:
    return None if categories is None else {name: round(value) for name, value in categories.items()}


def _report_device(device: DeviceSummary | None) -> dict[str, Any] | None:
    return None if device is None else dataclasses.asdict(device)


def _report_operator(row: OperatorRow) -> dict[str, Any]:
    return dataclasses.asdict(row)


def _report_kernel(row: KernelRow) -> dict[str, Any]:
    return _round_times(dataclasses.asdict(row))


def _round_times(values: dict[str, Any]) -> dict[str, Any]:
    return {
        name: round(value) if name.endswith("_ns") and value is not None else value for name, value in values.items()
    }


def _report_diagnosis(run: Run, warnings: list[str]) -> dict[str, Any]:
    ranks = run.ranks
    unknown = {"kind": "unknown", "stage": None, "share_frac": None, "confidence_frac": 0.0}
    if not ranks:
        return {"bound_by": unknown, "suggestions": [], "abstained": []}
    try:
        diagnosis = diagnose(run, ranks[0])
    except RunError as error:
        warnings.append(_warn_of(ranks[0], error))
        return {"bound_by": unknown, "suggestions": [], "abstained": []}
    return {
        "bound_by": dataclasses.asdict(diagnosis.bound_by),
        "suggestions": [_round_times(dataclasses.asdict(entry)) for entry in diagnosis.suggestions],
        "abstained": [dataclasses.asdict(entry) for entry in diagnosis.abstained],
    }


def _report_overhead(run: Run) -> dict[str, Any]:
    for rank in run.ranks:
        overhead = run.rank(rank).manifest.overhead
        return {
            "training_thread_ns_per_step": _round_or_none(overhead.training_thread_ns_per_step),
            "share_frac": overhead.share_frac,
            "how": overhead.how,
        }
    return {"training_thread_ns_per_step": None, "share_frac": None, "how": ""}


def _round_or_none(value: float | None) -> int | None:
    return None if value is None else round(value)


def _collect_warnings(run: Run) -> list[str]:
    found = []
    for rank in run.ranks:
        manifest = run.rank(rank).manifest
        found += [f"rank {rank}: {warning.text}" for warning in manifest.warnings]
        if manifest.events_lost:
            found.append(f"rank {rank}: {manifest.events_lost:,} events were lost because the log was full")
        found += [f"rank {rank}: {s.name} failed: {s.reason}" for s in manifest.signals if s.state == "failed"]
    return found


def render_text(report: dict[str, Any], run: Run | None = None) -> str:
    """Return the report as text for a terminal, ending in a newline.

    With the run, the steps come with all the figures of the percentiles table, p97 included, which the object lacks.
    """
    head = report["run"]
    parts = [
        f"{head['name']}  ({head['state']}, {head['source']}, {head['world_size']} "
        f"rank{'s' if head['world_size'] != 1 else ''}, {head['host']}, {head['created'][:19].replace('T', ' ')} UTC)",
        _render_verdict(report, run),
        *(_render_rank(rank, run) for rank in report["ranks"]),
        _render_suggestions(report),
    ]
    if report["abstained"]:
        lines = [f"  {a['rule']}: lacks {a['missing']}. {a['how']}" for a in report["abstained"]]
        parts.append("\n".join(["Not judged", *lines]))
    if report["warnings"]:
        parts.append("\n".join(["Warnings", *(f"  {warning}" for warning in report["warnings"])]))
    return "\n\n".join(part for part in parts if part) + "\n"


def _render_verdict(report: dict[str, Any], run: Run | None) -> str:
    try:
        if run is not None and run.ranks:
            return diagnose(run, run.ranks[0]).sentence
    except RunError:  # said in the warnings already
        pass
    bound = report["bound_by"]
    if bound["kind"] == "unknown":
        return "What the run is bound by cannot be said; the warnings below say why."
    stage = f" ({bound['stage']})" if bound["stage"] else ""
    return f"Bound by {bound['kind']}{stage}: {format_share(bound['share_frac'])} of the step"


def _render_rank(rank: dict[str, Any], run: Run | None) -> str:
    steps, times = rank["steps"], rank["steps"]["duration_ns"]
    if times is None:
        return "\n".join([f"Rank {rank['rank']}: {_explain_no_steps(rank, run)}", *_render_pipeline(rank)])
    left_out = f", {len(steps['excluded'])} left out (warm-up, detailed windows)" if steps["excluded"] else ""
    lines = [f"Rank {rank['rank']}: {steps['count']} steps{left_out}", f"  step      {_render_times(rank, run)}"]
    labels = {phase.name: phase.label for phase in PHASES}
    for phase in rank["phases"]:
        bar = "#" * round(40 * phase["share_frac"])
        label, mean = labels.get(phase["name"], phase["name"]), format_duration(phase["mean_ns"])
        lines.append(f"  {label:<28} {mean:>9}  {format_share(phase['share_frac']):>7}  {bar}".rstrip())
    slow = _render_slow_steps(rank)
    return "\n".join([*lines, *_render_evaluation(rank, run), *slow, *_render_pipeline(rank)])


def _render_evaluation(rank: dict[str, Any], run: Run | None) -> list[str]:
    """Say what the evaluation between the training steps took; nothing for a run that only infers."""
    rows = run.rank(rank["rank"]).table("steps") if run is not None else None
    found = summarize_evaluation(rows) if rows is not None and has_training(rows) else None
    if found is None:
        return []
    text = f"{format_number_of(found.count, 'batch')}, {format_duration(found.total_ns)} in all"
    return [f"  evaluation: {text} ({format_share(found.share_frac)} of the recorded time)"]


def _render_slow_steps(rank: dict[str, Any]) -> list[str]:
    lines = []
    for entry in rank["interruptions"][:_MOST_HELD]:
        name = Held(entry["kind"], entry["name"]).label
        longest = f", {format_duration(entry['longest_ns'])} the longest" if entry["count"] > 1 else ""
        times = format_number_of(entry["count"], "time")
        lines.append(f"  held up by {name}: {times}, {format_duration(entry['total_ns'])} in all{longest}")
    slow = rank["outliers"][:_MOST_SLOW]
    return lines + [f"  slow step {e['step']}: {e['ratio']:.1f}× the median; {e['text']}" for e in slow]


def _explain_no_steps(rank: dict[str, Any], run: Run | None) -> str:
    status = run.rank(rank["rank"]).status("steps") if run is not None else None
    return "no steps were recorded." if status is None or status.state != "broken" else "its steps cannot be read."


def _render_pipeline(rank: dict[str, Any]) -> list[str]:
    lines = [
        f"  {queue['name'].replace('_', ' ')}: {queue['mean_depth']:.1f} of {queue['capacity']} on average "
        f"({format_share(queue['usage_frac'])}), empty {format_share(queue['empty_frac'])} of the time"
        for queue in rank["queues"]
    ]
    lines += [
        f"  stage {stage['name']}: {format_duration(stage['mean_ns'])} per batch, busy "
        f"{format_share(stage['busy_frac'])} of {stage['replicas']} replica{'s' if stage['replicas'] != 1 else ''}"
        for stage in rank["stages"]
    ]
    return lines


def _render_times(rank: dict[str, Any], run: Run | None) -> str:
    times = rank["steps"]["duration_ns"]
    figures = {"min": times["min"], "max": times["max"], "mean": times["mean"]}
    if run is not None:
        selection = select_steps(read_steps(run.rank(rank["rank"])))
        values = selection.duration_ns[selection.kept]
        figures |= dict(zip(_F08, np.percentile(values, tuple(_F08.values())), strict=True))
        count = len(values)
    else:
        names = {"median": "p50", "p90": "p90", "p95": "p95", "p99": "p99", "p99.9": "p999"}
        figures |= {label: times[key] for label, key in names.items()}
        count = rank["steps"]["count"] - len(rank["steps"]["excluded"])
    return f"count {count}, " + ", ".join(f"{name} {format_duration(value)}" for name, value in figures.items())


def _render_suggestions(report: dict[str, Any]) -> str:
    if not report["suggestions"]:
        return "Suggestions: none."
    lines = ["Suggestions"]
    for number, entry in enumerate(report["suggestions"], start=1):
        lines.append(f"  {number}. {entry['title']}  [{entry['severity']}, {entry['rule']}]")
        if entry["predicted_step_ns"] is not None:
            span = f"{format_duration(entry['predicted_low_ns'])} – {format_duration(entry['predicted_high_ns'])}"
            lines.append(f"     Predicted step: {format_duration(entry['predicted_step_ns'])} ({span})")
        lines += [
            f"     Measured: {entry['measured']}",
            f"     Threshold: {entry['threshold']}",
            f"     {entry['advice']}",
        ]
        lines += [f"     | {line}" for line in entry["change"].splitlines()]
    return "\n".join(lines)
