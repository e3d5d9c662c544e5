"""Runs of earlier versions open: what no longer is declared is passed over."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from collector.format.run import open_run
from collector.format.schema import layout
from profiler_server.report import build_report
from tests.support.runs import build_run


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
