"""The report of a run as one object. Times are whole ns, shares are fractions, and a missing value is None."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from collector.edge import attempt
from collector.format.rank import read_step_rows
from collector.format.run import RankRun, Run
from collector.format.schema.errors import RunError
from collector.format.schema.manifest import Overhead
from collector.format.steps import PhaseShare, sum_recorded, summarize_phases, summarize_steps
from profiler_server.analysis.accounting.categories import summarize_categories
from profiler_server.analysis.change_points import LevelChange
from profiler_server.analysis.data.feeding import find_feeding_loaders
from profiler_server.analysis.data.queues import summarize_queues
from profiler_server.analysis.data.stages import summarize_stages
from profiler_server.analysis.device.device import summarize_device
from profiler_server.analysis.operators.mfu import measure_mfu
from profiler_server.analysis.operators.operators import summarize_kernels, summarize_operators
from profiler_server.analysis.ranks.ending import find_end
from profiler_server.analysis.recorded_facts import read_completeness
from profiler_server.analysis.stacks.stacks import read_stacks
from profiler_server.analysis.steps.interruptions import read_interruptions
from profiler_server.analysis.steps.outliers import Outlier, explain_outlier, list_outliers
from profiler_server.analysis.steps.requests import summarize_other_calls, summarize_requests
from profiler_server.analysis.steps.start_up import measure_start_up
from profiler_server.analysis.steps.tokens import measure_tokens
from profiler_server.diagnosis.judging import diagnose
from profiler_server.diagnosis.tried import find_trials
from profiler_server.facts.results import BoundBy
from profiler_server.facts.start_up import StartUp
from profiler_server.facts.steps import sum_interruptions
from profiler_server.format import format_number_of
from profiler_server.report.all_ranks import (
    report_attempts,
    report_end,
    report_hang,
    report_job_time,
    report_judgement,
    report_slow_call,
    report_what_if,
)
from profiler_server.report.outcome import report_outcome
from profiler_server.report.schema import VERSION, spell_out

if TYPE_CHECKING:
    from collector.traces.workers import Workers

T = TypeVar("T")
_PASSIVE = ("wait", "send")
_RANKS_FRAC = 0.85
"""Share of a report's time for reading ranks; comparing the ranks takes the rest."""


@dataclass(frozen=True)
class Reporting:
    """The options of a report. `workers` are processes that read ranks; None reads all in this one. `on_progress` gets
    the fraction of the report that is done.

    `earlier` is the run whose advice is compared with this run, None for no run. `ranks` are reported, None for all."""

    workers: Workers | None = None
    on_progress: Callable[[float], None] = lambda share: None
    earlier: Run | None = None
    ranks: Sequence[int] | None = None


ALONE = Reporting()


def build_report(run: Run, rank: int | None = None, how: Reporting = ALONE) -> dict[str, Any]:
    """Return the object that `report --json` prints, for all ranks or for `rank` alone.

    Verdict and suggestions are for the first of these ranks. A section that cannot be read, or fails, is left out and
    named in `warnings`. Raises RunNotFoundError, TableBrokenError or NewerSchemaError if the manifests cannot be read.
    """
    warnings: list[str] = []
    chosen = run.ranks if rank is None else (run.rank(rank).rank,)
    ranks = _report_ranks(run, chosen if how.ranks is None else how.ranks, warnings, how)
    problem = "how the job ended cannot be said"
    end = attempt(
        lambda: find_end(run), lambda error: warnings.append(f"{problem}: {type(error).__name__}: {error}"[:300])
    )
    return {
        "schema_version": VERSION,
        "run": _report_run(run),
        "ranks": ranks,
        **_report_diagnosis(run, chosen, warnings),
        "judgement": report_judgement(run, warnings),
        "slow_collective": report_slow_call(run),
        "what_if": report_what_if(run, warnings),
        "end": report_end(end),
        "attempts": report_attempts(run),
        "job_time": report_job_time(run),
        "hang": report_hang(end),
        "history": None,
        "outcome": report_outcome(how.earlier if run.redactor is None else None, run),
        "overhead": spell_out(run.read_rank(run.ranks[0]).manifest.overhead if run.ranks else Overhead()),
        "warnings": list(dict.fromkeys([*_collect_warnings(run), *warnings])),
    }


def _report_run(run: Run) -> dict[str, Any]:
    manifest = run.manifest
    devices = [
        device.name or f"GPU {device.index}" for rank in run.ranks for device in run.read_rank(rank).manifest.devices
    ]
    created = datetime.fromtimestamp(manifest.created_unix_ns / 1e9, tz=timezone.utc)
    return {
        "id": manifest.id,
        "name": manifest.name,
        "state": run.state,
        "is_recovered": run.is_recovered,
        "source": manifest.source,
        "world_size": manifest.world_size,
        "host": manifest.host,
        "created": created.isoformat(),
        "torch": manifest.torch,
        "devices": devices,
    }


def _report_ranks(run: Run, ranks: Sequence[int], warnings: list[str], how: Reporting) -> list[dict[str, Any]]:
    def tell(done: int) -> None:
        how.on_progress(_RANKS_FRAC * done / len(ranks))

    found = []
    if how.workers is None or how.workers.are_here or run.redactor is not None:
        for done, rank in enumerate(ranks, 1):
            found.append(_report_rank(run.read_rank(rank), warnings))
            tell(done)
        return found
    for report, said in how.workers.run(report_alone, [(run.path, rank) for rank in ranks], tell):
        found.append(report)
        warnings += said
    return found


def report_alone(task: tuple[Path, int]) -> tuple[dict[str, Any], list[str]]:
    """Return the report on one rank, and its warnings. `task` is path of the run, and rank. For worker processes."""
    warnings: list[str] = []
    return _report_rank(RankRun(*task), warnings), warnings


def _report_rank(rank: RankRun, warnings: list[str]) -> dict[str, Any]:
    def read(what: str, build: Callable[[], T]) -> T | None:
        """Return the result of `build`. If `build` fails, return None, and name the section `what` in a warning."""
        return attempt(build, lambda error: warnings.append(_spell_failure(rank.rank, what, error)))

    rows = read("its steps", lambda: read_step_rows(rank))
    steps, noun = (rows.steps, rows.noun) if rows is not None else (None, "step")
    slow = read("its slow steps", lambda: _report_slow_steps(rank, steps))
    phases = read("its phases", lambda: summarize_phases(steps) if steps is not None else ())
    return {
        "rank": rank.rank,
        "unit": noun,
        "completeness": read_completeness(rank.manifest.facts),
        "steps": read("the figures of its steps", lambda: _report_steps(steps, noun)) or _report_steps(None),
        **(slow or {"outliers": [], "interruptions": []}),
        "start_up": spell_out(read("its time to the first step", lambda: _measure_start(rank, steps))),
        "tokens": spell_out(read("its tokens", lambda: measure_tokens(rank, steps) if steps is not None else None)),
        "mfu": spell_out(read("its utilisation", lambda: measure_mfu(rank))),
        "phases": _report_phases(phases or ()),
        "categories": spell_out(read("its categories", lambda: summarize_categories(rank)), "_ns"),
        "device": spell_out(read("its device", lambda: summarize_device(rank))),
        "operators": spell_out(read("its operators", lambda: summarize_operators(rank)) or ()),
        "kernels": spell_out(read("its kernels", lambda: summarize_kernels(rank)) or ()),
        "requests": spell_out(read("its requests", lambda: summarize_requests(rank))),
        "other_calls": spell_out(read("its calls on other threads", lambda: summarize_other_calls(rank))),
        "stacks": read("its stacks", lambda: _report_stacks(rank)),
        "loaders": read("its loaders", lambda: _report_loaders(rank)) or [],
        "queues": spell_out(read("its queues", lambda: summarize_queues(rank)) or ()),
        "stages": spell_out(read("its stages", lambda: summarize_stages(rank)) or ()),
    }


def _measure_start(rank: RankRun, steps: pa.Table | None) -> StartUp | None:
    return None if steps is None else measure_start_up(rank)


def _report_stacks(rank: RankRun) -> dict[str, Any] | None:
    stacks = read_stacks(rank)
    if stacks is None:
        return None
    return {
        "phases": [spell_out(stacks.phase(name)) for name in stacks.phases],
        "stages": [
            {**spell_out(stacks.stage(loader, name)), "loader": loader}
            for loader, name in stacks.stages
            if name not in _PASSIVE
        ],
    }


def _report_loaders(rank: RankRun) -> list[dict[str, Any]]:
    """Return the DataLoaders: first those that feed the steps, by length of the wait; then those that do not feed the
    steps, by number.
    """
    feeding = find_feeding_loaders(rank)
    order = {number: place for place, number in enumerate(feeding)}
    loaders = sorted(rank.manifest.loaders, key=lambda loader: (order.get(loader.id, len(order)), loader.id))
    return [
        {
            "loader": loader.id,
            "dataset": loader.dataset,
            "num_workers": loader.num_workers,
            "feeds_steps": loader.id in order,
        }
        for loader in loaders
    ]


def _spell_failure(rank: int, what: str, error: Exception) -> str:
    if isinstance(error, RunError):
        return f"rank {rank}: {error}"
    first = (str(error).splitlines() or [""])[0]
    return f"rank {rank}: {what} cannot be reported: {type(error).__name__}: {first}"[:300]


def is_empty(report: dict[str, Any]) -> bool:
    """Return whether a report has nothing to show.

    It has something to show if a rank has a step, operator, kernel, queue or stage, if the job's end is known, or if
    the job has several attempts.
    """
    parts = ("operators", "kernels", "queues", "stages")
    has_rank = any(rank["steps"]["count"] or any(rank[part] for part in parts) for rank in report["ranks"])
    return not has_rank and report["end"] is None and not report["attempts"]


def _report_steps(steps: pa.Table | None, noun: str = "step") -> dict[str, Any]:
    if steps is None:
        unknown = dict.fromkeys(("first", "last", "duration_ns", "percentiles_missing"))
        return {"count": 0, "excluded": [], **unknown}
    summary = summarize_steps(steps)
    times = summary.duration_ns
    return {**spell_out(summary), "percentiles_missing": (times and times.explain_unranked(noun)) or None}


def _report_slow_steps(rank: RankRun, steps: pa.Table | None) -> dict[str, list[dict[str, Any]]]:
    found = read_interruptions(rank)
    outliers = list_outliers(steps, interruptions=found).shown if steps is not None else ()
    whole_ns = sum_recorded(rank.table("steps", ("duration_ns",))) if steps is not None else 0
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
                "share_frac": entry.total_ns / whole_ns if whole_ns else None,
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


def _report_phases(phases: Sequence[PhaseShare]) -> list[dict[str, Any]]:
    """Return the mean of each phase in whole ns. Rounding errors are carried to the next phase, so the means sum to the
    rounded mean step.
    """
    rows, exact, given = [], 0.0, 0
    for phase in phases:
        exact += phase.mean_ns
        mean = round(exact) - given
        given += mean
        rows.append({"name": phase.name, "mean_ns": mean, "share_frac": phase.share_frac})
    return rows


def _report_diagnosis(run: Run, ranks: Sequence[int], warnings: list[str]) -> dict[str, Any]:
    unknown = spell_out(BoundBy("unknown", None, None, 0.0))
    nothing = {"bound_by": unknown, "suggestions": [], "abstained": [], "tried": {}}
    if not ranks:
        return nothing
    tell = partial(_spell_failure, ranks[0], "what it is bound by")
    diagnosis = attempt(lambda: diagnose(run, ranks[0]), lambda error: warnings.append(tell(error)))
    if diagnosis is None:
        return nothing
    warnings += [f"rank {ranks[0]}: {line}" for line in diagnosis.warnings]
    return {
        "bound_by": spell_out(diagnosis.bound_by),
        "suggestions": spell_out(diagnosis.suggestions),
        "abstained": spell_out(diagnosis.abstained),
        "tried": spell_out(find_trials(run, diagnosis.suggestions)),
    }


def report_history(since: str, change: LevelChange) -> dict[str, Any]:
    return {"since": since, **spell_out(change)}


def _collect_warnings(run: Run) -> list[str]:
    found = []
    for rank in run.ranks:
        manifest = run.read_rank(rank).manifest
        found += [f"rank {rank}: {warning.text}" for warning in manifest.warnings]
        if manifest.events_lost:
            found.append(f"rank {rank}: the log was full, {format_number_of(manifest.events_lost, 'event')} lost")
        found += [f"rank {rank}: {s.name} failed: {s.reason}" for s in manifest.signals if s.state == "failed"]
    return found
