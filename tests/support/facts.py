"""Facts of a rank with one of them changed, so that a rule can be driven right up to its threshold."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from collector.estimating.model import Job
from collector.format.phases import PHASE_NAMES
from collector.format.steps import read_integers
from profiler_server.diagnosis.deriving import derive
from profiler_server.diagnosis.judging import find_rules
from profiler_server.facts.case import Case, Finding
from profiler_server.facts.loading import BatchTimes
from profiler_server.facts.machine import DeviceEntry, DeviceSummary, DeviceTimes, HostLoad, IdleCauses

QUIET = HostLoad(process=1.0, workers=0.0, system=1.0, others=0.0)


def speaks(case: Case, rule: str) -> bool:
    """Say whether a rule has a finding in this case."""
    return isinstance(find(case, rule), Finding)


def find(case: Case, rule: str) -> Any:
    """Ask a rule, with what follows from the facts of the case as they are now."""
    return next(entry for entry in find_rules().rules if entry.id == rule).judge(derive(case))


def with_steps(case: Case, **fields: Any) -> Case:
    return replace(case, steps=replace(case.steps, **fields))


def with_loading(case: Case, **fields: Any) -> Case:
    return replace(case, loading=replace(case.loading, **fields))


def with_loader(case: Case, **fields: Any) -> Case:
    assert case.loading.loader is not None
    return with_loading(case, loader=replace(case.loading.loader, **fields))


def with_loop(case: Case, **fields: Any) -> Case:
    return with_loading(case, loop=replace(case.loading.loop, **fields))


def with_model(case: Case, **fields: Any) -> Case:
    return with_loop(case, model=replace(case.loading.loop.model, **fields))


def with_load(case: Case, **fields: Any) -> Case:
    return replace(case, host=replace(case.host, load=replace(QUIET, **fields)))


def with_manifest(case: Case, **fields: Any) -> Case:
    return replace(case, manifest=dataclasses.replace(case.manifest, **fields))


def with_wait(case: Case, share: float) -> Case:
    """Let the step wait for data for this share of its time."""
    wait_ns = share * case.loading.loop.regular_step_ns
    case = with_share(case, "data_wait", share)
    return with_loading(case, wait_ns=wait_ns, mean_wait_ns=wait_ns)


def with_share(case: Case, phase: str, share: float) -> Case:
    """Let a phase take this share of the mean step."""
    return with_steps(case, phases_ns={**case.steps.phases_ns, phase: share * case.steps.mean_ns})


def with_rows(case: Case, **columns: Any) -> Case:
    """Replace columns of the training steps, such as gc_ns, by one value or one for each step."""
    rows = case.steps.rows
    for name, value in columns.items():
        values = np.broadcast_to(np.asarray(value, np.float64), (rows.num_rows,)).astype(np.int64)
        rows = rows.set_column(rows.schema.get_field_index(name), name, pa.array(values))
    return with_steps(case, rows=rows)


def read_mean(case: Case, column: str) -> float:
    """Return the mean of a column over the steps of the average."""
    return float(read_integers(case.steps.rows, column)[case.steps.selection.kept].mean())


def with_durations(case: Case, change: Callable[[np.ndarray], np.ndarray]) -> Case:
    """Make steps of other lengths; what a step is longer by lies in its tail."""
    selection = case.steps.selection
    durations = change(selection.duration_ns.astype(np.float64)).astype(np.int64)
    rest = read_integers(case.steps.rows, "tail_ns") + durations - selection.duration_ns
    case = with_rows(case, duration_ns=durations, tail_ns=rest)
    return with_steps(
        case,
        selection=replace(selection, duration_ns=durations),
        mean_ns=float(durations[selection.kept].mean()),
    )


def with_batches(case: Case, total_ns: Any, cpu_frac: float = 0.1) -> Case:
    """Let batches take this long, one value or a series, all of it reading."""
    values = np.atleast_1d(np.asarray(total_ns, np.float64))
    batches = BatchTimes({"read": values}, values, values * cpu_frac, 32.0)
    return with_loading(case, batches=batches)


def with_jobs(case: Case, wall_ns: float, cores: float) -> Case:
    return with_model(case, batches=(Job(wall_ns, cores),) * 40)


def with_device(case: Case, busy: float = 0.5, host_wait: float = 1.0, **fields: Any) -> Case:
    """Give the rank a device that is busy for a share of the step, and idle for launches for a share of the rest."""
    total, idle = 1_000_000, round(1_000_000 * (1.0 - busy))
    times = DeviceTimes(total, total - idle, 0, 0, idle)
    causes = IdleCauses(round(idle * host_wait), 0, idle - round(idle * host_wait))
    summary = DeviceSummary(
        **dataclasses.asdict(times),
        linked_only=times,
        utilization_frac=busy,
        sm_efficiency_frac=None,
        occupancy_frac=None,
        tensor_core_frac=None,
        idle_causes_ns=causes,
    )
    entry = DeviceEntry("cuda", "8.0")
    changed = {"entries": (entry,), "summary": summary, "dispatch_frac": 0.5, **fields}
    return replace(case, device=replace(case.device, **changed))


def split_step(case: Case, **shares: Any) -> Case:
    """Make every step of these shares of its time; the rest is forward."""
    durations = case.steps.selection.duration_ns
    parts: Mapping[str, Any] = {f"{name}_ns": shares.get(name, 0.0) * durations for name in PHASE_NAMES}
    rest = durations - sum(parts.values())
    return with_rows(case, **{**parts, "forward_ns": rest})
