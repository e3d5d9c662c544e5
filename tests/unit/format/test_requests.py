"""Runs of earlier versions open: samples of queues count once per batch, and what no longer is declared is passed over."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from collector.format.run import RankRun, open_run
from collector.format.schema import layout
from profiler_server.analysis.data.queues import summarize_queues
from profiler_server.report import build_report
from tests.support.runs import RunPlan, build_run
from tests.support.tables import sample, write_rows


def build_old_run(path: Path, epochs: int, batches: int) -> RankRun:
    """Build a run as version 0.1.0 left it: the end of each epoch is a sample, and there is no column of batches."""
    run = build_run(path, RunPlan(steps=epochs * (batches + 1)))
    fetches = open_run(run).table("fetches").to_pylist()
    asked = [row["start_ns"] for row in fetches]
    ends = [number % (batches + 1) == batches for number in range(len(asked))]
    rows = [sample(n, 0 if end else 3, start_ns=at) for n, (at, end) in enumerate(zip(asked, ends, strict=True), 1)]
    rows += [sample(1, 2, start_ns=5, loader=-1, queue="frames")]
    write_rows(run, "queues", rows)
    write_rows(run, "fetches", [row for row, end in zip(fetches, ends, strict=True) if not end])
    file = layout.table_file(layout.rank_path(run, 0), "queues")
    pq.write_table(pq.read_table(file).drop_columns(["batch"]), file)
    return open_run(run).rank()


def test_the_end_of_an_epoch_is_no_request_of_a_run_of_the_first_version(tmp_path: Path) -> None:
    rank = build_old_run(tmp_path / "old", epochs=15, batches=4)
    depths = {row.name: (row.samples, row.mean_depth, row.empty_frac) for row in summarize_queues(rank)}
    assert depths["worker_queue"] == (60, 3.0, 0.0)
    assert depths["frames"] == (1, 2.0, 0.0)


@pytest.mark.parametrize("columns", [("depth",), ("start_ns", "depth"), None])
def test_the_columns_that_were_asked_for_are_read(tmp_path: Path, columns: tuple[str, ...] | None) -> None:
    rank = build_old_run(tmp_path / "old", epochs=2, batches=4)
    table = rank.table("queues", columns)
    assert table.column_names == list(columns or open_run(build_run(tmp_path / "new")).table("queues").column_names)
    assert len(table) == 9


def test_samples_of_a_run_without_fetches_all_count(tmp_path: Path) -> None:
    rank = build_old_run(tmp_path / "old", epochs=2, batches=4)
    layout.table_file(rank.folder, "fetches").unlink()
    assert len(rank.table("queues")) == 11


def test_a_run_with_the_probe_of_earlier_versions_opens(tmp_path: Path) -> None:
    run = build_run(tmp_path / "probed")
    rank = layout.rank_path(run, 0)
    steps = pq.read_table(layout.table_file(rank, "steps"))
    names = steps.column_names
    pq.write_table(steps.append_column("probed", pa.array([True] * len(steps))), layout.table_file(rank, "steps"))
    manifest = json.loads((rank / layout.RANK_FILE).read_text())
    facts = {"probe": {"rounds": []}, "subnormals": {}, "bfloat16": {"rows": 1}}
    (rank / layout.RANK_FILE).write_text(json.dumps({**manifest, "facts": {**manifest["facts"], **facts}}))
    report = build_report(open_run(run))
    assert open_run(run).table("steps").column_names == names
    assert report["ranks"][0]["steps"]["count"] > 0
    assert "probe" not in report["ranks"][0]
    assert not report["warnings"]
