"""Read what a what-if analysis needs from the ranks of a run."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from collector.format.phases import PHASE_NAMES
from collector.format.run import RankRun, Run
from collector.format.schema.errors import RunError
from collector.format.steps import read_integers, select_steps, train_steps
from profiler_server.analysis.what_if.job import build_job
from profiler_server.analysis.what_if.result import WhatIf
from profiler_server.analysis.what_if.schedule import ScheduleError
from profiler_server.analysis.what_if.steps import JobSteps, weigh_steps
from profiler_server.analysis.what_if.stragglers import replay_job
from profiler_server.store.cache.memory import MemoryCache
from profiler_server.store.cache.stamp import stamp_run

_OWN = tuple(name for name in PHASE_NAMES if name != "communication")
_STEP_COLUMNS = (
    "kind",
    "step",
    "duration_ns",
    "detailed",
    "batch",
    "loader_start_ns",
    *(f"{n}_ns" for n in PHASE_NAMES),
)
MOST_STEPS = 1000
"""Of longer runs the last so many steps that all ranks have are weighed."""


_ANSWERS: MemoryCache[WhatIf | None] = MemoryCache(16)


def recall_what_if(run: Run) -> WhatIf | None:
    """Return the what-if figures over all steps of a run, from what is kept if its files are the same."""
    return _ANSWERS.find_or_compute(run.key, stamp_run(run.path), lambda: ask_what_if(run))


def ask_what_if(run: Run) -> WhatIf | None:
    """Return the what-if figures of a run, None for a run of one rank.

    Operations of a job are replayed where a trace has them; else the steps are weighed. A rank that cannot be read is
    left out.
    """
    ranks = [RankRun(run.path, rank) for rank in run.ranks]
    if len(ranks) < 2:
        return None
    operations = _read_operations(ranks)
    if operations is None:
        return weigh_steps(_read_steps(ranks))
    job = build_job(operations)
    if job is None:
        return WhatIf(method="replay", reason="No step has every operation of every rank, so none can be replayed.")
    try:
        return replay_job(job)
    except ScheduleError as error:
        return WhatIf(method="replay", reason=f"The operations are not those of a pipeline: {error}.")


def _read_operations(ranks: list[RankRun]) -> pa.Table | None:
    tables = []
    for rank in ranks:
        try:
            if rank.status("job_operations").state != "there":
                return None
            table = rank.table("job_operations")
        except RunError:
            return None
        tables.append(table.append_column("rank", pa.array(np.full(table.num_rows, rank.rank))))
    return pa.concat_tables(tables).unify_dictionaries()


def _read_steps(ranks: list[RankRun]) -> JobSteps:
    found: dict[int, pa.Table] = {}
    for rank in ranks:
        try:
            table = rank.table("steps", _STEP_COLUMNS)
        except RunError:
            continue
        kept = train_steps(table).filter(pa.array(select_steps(table).kept))
        if kept.num_rows:
            found[rank.rank] = kept
    common = _find_common([read_integers(table, "step") for table in found.values()])
    rows = {
        rank: table.take(pa.array(np.searchsorted(read_integers(table, "step"), common)))
        for rank, table in found.items()
    }

    def read(column: str) -> np.ndarray:
        values = [read_integers(table, column).astype(np.float64) for table in rows.values()]
        return np.stack(values) if values else np.zeros((0, 0))

    phases = {name: read(f"{name}_ns") for name in _OWN}
    return JobSteps(np.array(list(rows), np.int64), read("duration_ns"), read("communication_ns"), phases)


def _find_common(numbers: list[np.ndarray]) -> np.ndarray:
    """Return the steps that all ranks have, the last of many."""
    if not numbers:
        return np.empty(0, np.int64)
    common = numbers[0]
    for other in numbers[1:]:
        common = np.intersect1d(common, other)
    return common[-MOST_STEPS:]
