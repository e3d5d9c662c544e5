"""A phase is one row; a phase that a later version brings takes no time in older runs."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from collector.format import carried, stored_files
from collector.format.phases import PALETTE, PHASE_PLACES, PHASES, Phase
from collector.format.run import open_run
from collector.format.schema import layout
from collector.format.schema.columns import SCHEMA_VERSION, Column
from collector.format.schema.errors import TableBrokenError
from collector.format.schema.tables import TABLES
from collector.traces.importing import import_trace
from profiler_server.timeline.export import export_timeline
from profiler_server.timeline.view import view_meta
from profiler_server.web.frontend import find_frontend
from tests.support.runs import RunPlan, build_run

LATER = SCHEMA_VERSION + 1


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Declare a phase that the next version of the format brings."""
    steps = TABLES["steps"]
    column = Column("upload_ns", "int64", "ns", "Uploads.", since=LATER)
    monkeypatch.setitem(TABLES, "steps", replace(steps, columns=(*steps.columns, column)))
    for module in (stored_files, carried):
        monkeypatch.setattr(module, "SCHEMA_VERSION", LATER)
    for table in TABLES:
        monkeypatch.setitem(stored_files.SCHEMAS, table, stored_files.make_schema(table))


@pytest.fixture
def old_run(tmp_path: Path) -> Path:
    return build_run(tmp_path / "run", RunPlan(steps=3))


@pytest.fixture
def old_export(old_run: Path) -> Path:
    export_timeline(open_run(old_run), old_run / "export.json.gz")
    return old_run / "export.json.gz"


def test_a_later_phase_takes_no_time_in_an_older_run(old_run: Path, later: None) -> None:
    steps = open_run(old_run).rank(0).table("steps")
    assert steps["upload_ns"].to_pylist() == [0, 0, 0]
    assert steps["upload_ns"].null_count == 0
    assert open_run(old_run).table("steps", columns=("step", "upload_ns")).column_names == ["step", "upload_ns"]


def test_the_tables_of_an_older_export_are_used(old_export: Path, tmp_path: Path, later: None) -> None:
    run = import_trace(old_export, tmp_path / "imported")
    assert run.manifest.source == "export"
    assert run.table("steps")["upload_ns"].to_pylist() == [0, 0, 0]


def test_a_file_that_lacks_a_phase_of_its_own_version_is_damaged(old_run: Path, later: None) -> None:
    path = layout.table_file(layout.rank_path(old_run, 0), "steps")
    stored = pq.read_table(path)
    pq.write_table(stored.replace_schema_metadata({b"stepscope.schema_version": b"%d" % LATER}), path)
    with pytest.raises(TableBrokenError, match="upload_ns"):
        open_run(old_run).table("steps")
    pq.write_table(stored.drop_columns(["forward_ns"]), path)
    with pytest.raises(TableBrokenError, match="forward_ns"):
        open_run(old_run).table("steps")


@pytest.mark.parametrize("phase", PHASES, ids=lambda phase: phase.name)
def test_the_colour_of_a_phase_is_one_of_the_style_sheet(phase: Phase) -> None:
    assert phase.color in PALETTE
    assert f".fill-{phase.color} " in (find_frontend() / "static/css/tokens.css").read_text("utf-8")


def test_no_script_or_style_sheet_repeats_a_phase() -> None:
    labels = "|".join(re.escape(phase.label) for phase in PHASES if " " in phase.label)
    files = [
        p for p in (find_frontend() / "static").rglob("*") if p.suffix in (".js", ".css") and "vendor" not in p.parts
    ]
    assert files
    assert [path.name for path in files if re.search(labels, path.read_text("utf-8"))] == []


def test_the_codes_of_phases_in_event_logs_do_not_change() -> None:
    """A log that a killed training left is assembled by whichever version recovers it."""
    first = ("gap", "data_wait", "h2d", "forward", "backward", "communication", "optimizer", "tail")
    assert [PHASE_PLACES[name] for name in first] == list(range(len(first)))


def test_the_viewer_is_told_the_colours(tmp_path: Path) -> None:
    from profiler_server.timeline.cache import TimelineCache

    rank = open_run(build_run(tmp_path / "shown", RunPlan(steps=3))).rank(0)
    assert view_meta(TimelineCache().open(rank))["phaseColors"]["Data wait"] == "data"
