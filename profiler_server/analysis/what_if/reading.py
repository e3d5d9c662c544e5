"""Read what a what-if analysis needs from the ranks of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from collector.format.phases import PHASE_NAMES
from collector.format.run import RankRun, Run
from collector.format.schema.errors import RunError
from profiler_server.analysis.ranks.ranks import RankSummary
from profiler_server.analysis.ranks.together import COMMUNICATION, RankSteps, put_together
from profiler_server.analysis.what_if.job import build_job
from profiler_server.analysis.what_if.schedule import ScheduleError
from profiler_server.analysis.what_if.steps import JobSteps, weigh_steps
from profiler_server.analysis.what_if.stragglers import replay_job
from profiler_server.derive.derived import derived
from profiler_server.facts.job import BETWEEN
from profiler_server.facts.ranks import JobSlowdown


@derived(reads=lambda run, ranks: (run, *((rank.rank, rank.together) for rank in ranks if rank.steps)))
def recall_what_if(run: Run, ranks: Sequence[RankSummary]) -> JobSlowdown | None:
    """Return the what-if figures over all steps of the ranks; None for one rank.

    Operations of a job are replayed where a trace has them; else the steps are weighed. A rank that cannot be read is
    left out.
    """
    if len(run.ranks) < 2:
        return None
    operations = _read_operations([run.read_rank(rank) for rank in run.ranks])
    if operations is None:
        return weigh_steps(gather_steps({rank.rank: rank.together for rank in ranks if rank.steps}))
    job = build_job(operations)
    if job is None:
        return JobSlowdown(
            method="replay", reason="No step has every operation of every rank, so none can be replayed."
        )
    try:
        return replay_job(job)
    except ScheduleError as error:
        return JobSlowdown(method="replay", reason=f"The operations are not those of a pipeline: {error}.")


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


def gather_steps(steps: Mapping[int, RankSteps]) -> JobSteps:
    """Set the steps of the ranks beside each other; ranks that were cut short are left out."""
    together = put_together(steps)
    phases = {name: together.parts_ns[at] for at, name in enumerate(PHASE_NAMES) if at != COMMUNICATION}
    phases[BETWEEN] = together.between_ns
    return JobSteps(np.array(together.ranks, np.int64), together.step_ns, together.held_ns, phases)
