"""Damaged and hostile runs and wrong addresses: what is left is shown, and each message says what is the matter."""

from __future__ import annotations

import json
import os
import random
import tempfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from collector.format import parts
from collector.format.schema import layout
from collector.format.schema.errors import TableBrokenError
from collector.format.schema.tables import TABLES
from collector.notebook.run import open_run
from profiler_server.store.sql import connect
from profiler_server.timeline.cache import TimelineCache
from profiler_server.timeline.details import describe_slice
from profiler_server.timeline.export import export_timeline
from profiler_server.web.answers import describe_error
from profiler_server.web.frontend import format_clock
from tests.support.asking import Asker
from tests.support.panorama import build_rich
from tests.support.runs import RunPlan, build_run


@pytest.fixture
def client(tmp_path: Path) -> Asker:
    for name in ("run", "hurt"):
        build_run(tmp_path / name, RunPlan(steps=12))
    build_run(tmp_path / "long", RunPlan(steps=60))
    steps = layout.table_file(layout.rank_path(tmp_path / "hurt", 0), "steps")
    steps.write_bytes(steps.read_bytes()[:500])
    return Asker(tmp_path)


def test_a_run_whose_steps_cannot_be_read_is_damaged_in_the_list_and_on_its_pages(client: Asker) -> None:
    badge = '<span class="badge badge-damaged">Damaged</span>'
    assert client.ask("/").text.count(badge) == 1
    assert badge in client.ask("/runs/hurt/operators").text.split("</header>")[0]
    assert badge not in client.ask("/runs/run/operators").text


def test_the_timeline_shows_what_is_left_with_a_notice(client: Asker) -> None:
    answer = client.ask("/runs/hurt/timeline")
    assert answer.status_code == 200
    assert "Damaged: steps." in answer.text
    assert "Phases" in answer.text


def test_a_crashed_run_that_was_assembled_is_not_sent_to_recovery_again(asker: Asker) -> None:
    text = asker.ask("/runs/crashed/").text
    assert "Everything that it recorded is shown." in text
    assert "stepscope recover" not in text


def test_a_crashed_run_says_up_to_when_it_is_recorded_and_how_often_it_was_flushed(tmp_path: Path) -> None:
    build_run(tmp_path / "run", RunPlan(steps=12, state="crashed"))
    manifest = tmp_path / "run" / "profiler" / "rank_0" / "rank.json"
    epoch_ns = open_run(tmp_path / "run").manifest.epoch_unix_ns
    raw = {**json.loads(manifest.read_text()), "recorded_until_ns": 90_000_000_000, "flush_s": 3.0}
    manifest.write_text(json.dumps(raw))
    text = " ".join(Asker(tmp_path).ask("/runs/run/").text.split())
    assert f"It is recorded up to {format_clock(epoch_ns + 90_000_000_000)}" in text
    assert "written to the disk every 3 s." in text


@pytest.mark.parametrize("page", ["", "steps"])
def test_pages_say_that_a_damaged_table_stays_lost(client: Asker, page: str) -> None:
    text = client.ask(f"/runs/hurt/{page}").text
    assert "and cannot be made again; the other tables of the run are not affected" in text
    assert "stepscope recover" not in text


def test_pages_answer_head(client: Asker) -> None:
    assert client.ask("/", "HEAD").status_code == 200
    assert client.ask("/runs/run/", "HEAD").status_code == 200


def test_a_comparison_cautions_about_runs_of_different_length(client: Asker) -> None:
    text = client.ask("/compare?a=run&b=long").text
    assert "B has 5 × as many steps" in text
    assert "All training steps together" in text


@pytest.mark.parametrize("error", [pa.ArrowInvalid("not in range"), OverflowError("too large"), MemoryError()])
def test_numbers_out_of_range_are_damage_not_a_fault(error: Exception) -> None:
    assert describe_error(error).status == 409


SEED = 20


def change_type(data: pa.Table, name: str) -> pa.Table:
    at = data.schema.get_field_index(name)
    number = pa.types.is_integer(data.schema.field(at).type) or pa.types.is_floating(data.schema.field(at).type)
    other = [f"text {row}" if number else row for row in range(data.num_rows)]
    return data.set_column(at, name, pa.array(other, pa.string() if number else pa.int64()))


def empty(data: pa.Table, name: str) -> pa.Table:
    at = data.schema.get_field_index(name)
    return data.set_column(at, name, pa.nulls(data.num_rows, data.schema.field(at).type))


MUTATIONS: dict[str, Callable[[pa.Table, str], pa.Table]] = {
    "type": change_type,
    "missing": lambda data, name: data.drop_columns([name]),
    "nulls": empty,
}


def rewrite(path: Path, data: pa.Table, chooser: random.Random) -> None:
    """Write a file with its columns in any order, and without what Arrow says of their types."""
    names = chooser.sample(data.column_names, data.num_columns)
    path.unlink(missing_ok=True)
    pq.write_table(data.select(names).replace_schema_metadata(None), path)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    build_rich(folder / "run")
    return folder


@pytest.fixture(scope="module")
def hostile(base: Path) -> Asker:
    return Asker(base)


@pytest.mark.parametrize(
    ("mutation", "table", "column", "said"),
    [
        ("type", "slices", "id", "the column id holds string in the place of int64"),
        ("type", "stages", "stage", "the column stage holds int64 in the place of category"),
        ("missing", "queues", "depth", "the column depth is missing"),
        ("nulls", "steps", "start_ns", "the column start_ns lacks values"),
    ],
)
def test_a_table_with_other_columns_is_damage_that_names_file_and_column(
    tmp_path: Path, mutation: str, table: str, column: str, said: str
) -> None:
    rank = open_run(build_run(tmp_path / "run", RunPlan(steps=14))).rank()
    path = layout.table_file(rank.folder, table)
    rewrite(path, MUTATIONS[mutation](parts.read_files([path], table), column), random.Random(SEED))
    with pytest.raises(TableBrokenError) as raised:
        rank.table(table)
    assert f"{path} is damaged ({said})" in str(raised.value)


def test_the_order_of_columns_and_those_that_may_be_absent_do_not_matter(tmp_path: Path) -> None:
    rank = open_run(build_run(tmp_path / "run", RunPlan(steps=14))).rank()
    for table in ("fetches", "slices", "steps"):
        path = layout.table_file(rank.folder, table)
        data = rank.table(table)
        absent = next(column.name for column in TABLES[table].columns if column.nullable)
        rewrite(path, data.drop_columns([absent]), random.Random(SEED))
        read = rank.table(table)
        assert read.drop_columns([absent]).to_pylist() == data.drop_columns([absent]).to_pylist()
        assert read[absent].null_count == data.num_rows
    timeline = TimelineCache().open(rank)
    assert timeline.index.table_rows == rank.count_rows("slices")


def test_a_run_in_a_folder_whose_name_is_no_text_is_read_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    run = open_run(build_run(tmp_path / os.fsdecode(b"run\xff"), RunPlan(steps=14)))
    rows = run.rank().count_rows("slices")
    timeline = TimelineCache().open(run.rank())
    assert timeline.index.table_rows == rows
    assert describe_slice(timeline, rows - 1) is not None
    assert export_timeline(run, tmp_path / "export.json").slices > 0
    assert connect(run).execute("SELECT count(*) FROM slices").fetchone() == (rows,)
    assert run.write_trace(tmp_path / "trace.json") > rows
