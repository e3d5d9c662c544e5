"""Advice on communication that nothing hides is about how the ranks exchange gradients."""

from __future__ import annotations

from pathlib import Path

import pytest

from collector.format.run import open_run
from profiler_server.diagnosis.judging import diagnose
from tests.support.cases import PLANTED, build_case_run
from tests.support.diagnosing import measure
from tests.support.machines import build_collectives
from tests.support.row_edits import lay_end_to_end, write_rows
from tests.support.runs import MS, build_steps


@pytest.mark.parametrize(
    ("names", "change"),
    [
        (("allreduce",), "DistributedDataParallel("),
        (("all_gather_single", "reduce_scatter_single"), "fully_shard("),
        (("_allgather_base", "_reduce_scatter_base"), "fully_shard("),
    ],
)
def test_sharded_models_are_not_told_of_the_buckets_of_copies(
    tmp_path: Path, names: tuple[str, ...], change: str
) -> None:
    run = build_case_run(tmp_path / "run", PLANTED["exposed_all_reduce"])
    for rank in (0, 1):
        rows = build_collectives(build_steps(PLANTED["exposed_all_reduce"].plan), late=False)
        rows = [{**row, "name": name, "index": 0} for row in rows for name in names]
        write_rows(run.rank(rank).folder, "collectives", rows)
    said = {entry.rule: entry for entry in diagnose(open_run(run.path), 0).suggestions}
    assert change in said["exposed_all_reduce"].change


def test_waiting_for_ranks_that_take_turns_is_no_communication_to_hide(tmp_path: Path) -> None:
    plant = PLANTED["rotating_straggler"]
    run = build_case_run(tmp_path / "run", plant)
    for rank in (0, 1):
        rows = build_steps(plant.plan)
        for row in rows:
            row["backward_ns" if row["step"] % 2 == rank else "communication_ns"] += 60 * MS
        lay_end_to_end(rows)
        write_rows(run.rank(rank).folder, "steps", rows)
    again = open_run(run.path)
    said = {entry.rule for entry in diagnose(again, 0).suggestions}
    assert "rotating_straggler" in said
    assert "exposed_all_reduce" not in said
    case = measure(again)
    assert case.steps.phases_ns["communication"] > 25 * MS
    assert case.transfer_ns < MS
