"""Who did the work of the data pipeline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from collector.format import parts
from collector.format.run import open_run
from profiler_server.analysis.data.replicas import (
    find_slow_items,
    read_stages,
    summarize_replicas,
    summarize_totals,
    summarize_transforms,
)
from tests.support.runs import RunPlan, build_run


def _row(stage: str, replica: int, start: int, length: int, **columns: Any) -> dict[str, Any]:
    place = {"stage": stage, "replica": replica, "kind": "work", "loader": 0, "epoch": 1, "batch": 0}
    return {**place, "start_ns": start, "duration_ns": length, "items": 4, **columns}


def _stages(*rows: dict[str, Any]) -> pa.Table:
    return parts.build_table_from_rows("stages", rows)


def test_a_worker_is_work_waits_and_the_rest_of_its_wall_time() -> None:
    stages = _stages(
        _row("read", 0, 0, 50, kind="input_wait"),
        _row("read", 0, 50, 20),
        _row("collate", 0, 70, 5),
        _row("send", 0, 80, 10, kind="output_wait"),
        _row("read", 0, 90, 10, batch=1),
        _row("pin", -1, 0, 7),
    )
    worker, trainer = summarize_replicas(stages)
    assert (worker.replica, worker.batches, worker.wall_ns) == (0, 2, 100)
    assert (worker.work_ns, worker.input_wait_ns, worker.send_ns, worker.other_ns) == (35, 50, 10, 15)
    assert (trainer.replica, trainer.work_ns) == (-1, 7)


def test_the_processor_share_is_over_the_rows_that_know_it() -> None:
    stages = _stages(
        _row("read", 0, 0, 100, cpu_ns=25, bytes=10, longest_ns=30),
        _row("read", 1, 0, 900, batch=1, bytes=5),
        _row("collate", 0, 100, 7, batch=1),
    )
    read, collate = summarize_totals(stages)
    assert (read.replicas, read.batches, read.items, read.bytes, read.work_ns) == (2, 2, 8, 15, 1000)
    assert read.cpu_frac == 0.25
    assert (collate.cpu_frac, collate.bytes) == (None, None)


def test_batches_of_two_epochs_are_not_taken_for_one() -> None:
    stages = _stages(_row("read", 0, 0, 1), _row("read", 0, 1, 1, epoch=2), _row("read", 0, 2, 1, loader=1))
    assert summarize_totals(stages)[0].batches == 3


def test_transforms_are_named_and_shared_out() -> None:
    stages = _stages(
        _row("transform", 0, 0, 30, detail="Resize"),
        _row("transform", 0, 30, 10, detail="Normalize"),
        _row("transform", 0, 40, 5),
        _row("read", 0, 0, 9, detail="open"),
    )
    assert [(row.name, row.share_frac) for row in summarize_transforms(stages)] == [
        ("Resize", 0.75),
        ("Normalize", 0.25),
    ]


def test_another_loaders_rows_are_left_out_and_the_users_stages_kept(tmp_path: Path) -> None:
    rank = open_run(build_run(tmp_path / "run", RunPlan())).rank(0)
    rows = [_row("read", 0, 0, 1), _row("read", 0, 0, 1, loader=1), _row("tokenize", 0, 0, 1, loader=None)]
    parts.write_table(_stages(*rows), rank.folder / "stages.parquet")
    assert read_stages(rank, 0)["stage"].to_pylist() == ["read", "tokenize"]
    assert read_stages(rank, None).num_rows == 3


@pytest.mark.parametrize("summarize", [summarize_replicas, summarize_totals, summarize_transforms, find_slow_items])
def test_no_rows_are_no_summary(summarize: Any) -> None:
    assert summarize(_stages()) == ()


def test_an_item_that_is_slow_in_two_stages_is_told_once() -> None:
    stages = _stages(
        _row("read", 0, 0, 30, longest_ns=20, longest_item=7),
        _row("transform", 0, 0, 30, longest_ns=9, longest_item=7, detail="Resize"),
        _row("collate", 0, 0, 30, longest_ns=9, longest_item=-1),
        _row("collate", 0, 0, 30, longest_ns=9),
    )
    found = find_slow_items(stages)
    assert [(row.stage, row.item) for row in found] == [("read", 7), ("collate", None), ("collate", None)]


def test_the_transform_that_took_most_of_a_sample_is_named_and_not_its_reading() -> None:
    stages = _stages(
        _row("read", 0, 0, 30, longest_ns=204, longest_item=7),
        _row("transform", 0, 30, 250, longest_ns=200, longest_item=7, detail="Blur"),
        _row("transform", 0, 280, 5, longest_ns=2, longest_item=7, detail="Flip"),
        _row("read", 0, 300, 90, batch=1, longest_ns=60, longest_item=8),
        _row("transform", 0, 390, 50, batch=1, longest_ns=40, longest_item=9, detail="Blur"),
    )
    found = [(row.stage, row.detail, row.item, row.longest_ns, row.end_ns) for row in find_slow_items(stages)]
    assert found == [
        ("transform", "Blur", 7, 204, 280),
        ("read", "", 8, 60, 390),
        ("transform", "Blur", 9, 40, 440),
    ]


def test_time_between_epochs_is_no_time_of_a_worker() -> None:
    (worker,) = summarize_replicas(_stages(_row("read", 0, 0, 90), _row("read", 0, 5_000, 60, epoch=2, batch=1)))
    assert (worker.work_ns, worker.wall_ns, worker.other_ns) == (150, 150, 0)


def test_what_a_worker_sends_while_it_makes_the_next_batch_is_no_part_of_its_time() -> None:
    stages = _stages(
        _row("read", 0, 0, 40),
        _row("collate", 0, 40, 10),
        _row("send", 0, 50, 30),
        _row("read", 0, 50, 40, batch=1),
        _row("collate", 0, 90, 10, batch=1),
    )
    (worker,) = summarize_replicas(stages)
    assert (worker.work_ns, worker.other_ns, worker.wall_ns, worker.send_ns) == (100, 0, 100, 30)
