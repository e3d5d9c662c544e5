"""REST: shapes, paging, formats, and the one error shape."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from collector.format.schema import layout
from collector.format.schema.tables import TABLES
from profiler_server.web.routes import tables as table_routes
from tests.support.asking import Asker
from tests.support.runs import RunPlan, build_run

RUNS = "/api/v1/runs"


def test_runs_are_filtered_sorted_and_paged(asker: Asker) -> None:
    page = asker.ask(f"{RUNS}?sort=-step&page_size=2").json()
    assert page["total"] == 4
    assert page["pages"] == 2
    assert page["runs"][0]["id"] == "team/slow"
    assert [run["id"] for run in asker.ask(f"{RUNS}?q=SLOW").json()["runs"]] == ["team/slow"]
    assert [run["id"] for run in asker.ask(f"{RUNS}?state=crashed").json()["runs"]] == ["crashed"]


@pytest.mark.parametrize("query", ["state=asleep", "page=0", "page=x", "page_size=100000"])
def test_a_bad_value_is_named_in_the_one_error_shape(asker: Asker, query: str) -> None:
    answer = asker.ask(f"{RUNS}?{query}")
    assert answer.status_code == 422
    error = answer.json()["error"]
    assert set(error) == {"status", "kind", "message", "remedy", "detail"}
    assert error["message"].startswith(query.split("=")[0])


@pytest.mark.parametrize(
    ("address", "message"),
    [
        (f"{RUNS}?sort=size", "choose when, name, state"),
        (f"{RUNS}?page=99", "page=99 is past the end: the last page is 1"),
        (f"{RUNS}?stat=crashed", "There is no parameter 'stat' here; there are: page, page_size, q, sort, state"),
        (f"{RUNS}/healthy/operators?page=99&size=1", "page=99 is past the end"),
        (f"{RUNS}/healthy/steps?page=99", "page=99 is past the end: the last page is 1"),
        (f"{RUNS}/healthy/tables/phases?page=99&format=csv", "page=99 is past the end"),
        (f"{RUNS}/healthy/steps?columns=step", "no parameter 'columns'"),
        (f"{RUNS}/healthy/queues/worker_queue?page=99", "page=99 is past the end"),
        (f"{RUNS}/healthy/report?verbose=1", "there are: none"),
    ],
)
def test_what_is_asked_for_and_is_not_there_is_named(asker: Asker, address: str, message: str) -> None:
    answer = asker.ask(address)
    assert answer.status_code == 400
    assert message in answer.json()["error"]["message"]


def test_a_form_that_does_not_fit_is_told_without_a_regular_expression(asker: Asker) -> None:
    message = asker.ask(f"{RUNS}/healthy/operators?steps=a-b").json()["error"]["message"]
    assert message.startswith("steps: 'a-b'")
    assert "^" not in message


def test_the_list_says_how_many_pages_it_has(asker: Asker) -> None:
    assert "There is no page 99: the list has 1" in asker.ask("/?page=99").text


@pytest.mark.parametrize(
    "path", ["none", "none/report", "none/steps", "..%2f..%2fetc", "healthy/tables/none", "healthy/steps?rank=7"]
)
def test_what_is_not_there_is_a_404_in_the_same_shape(asker: Asker, path: str) -> None:
    answer = asker.ask(f"{RUNS}/{path}")
    assert answer.status_code == 404
    assert set(answer.json()["error"]) == {"status", "kind", "message", "remedy", "detail"}


def test_a_run_tells_its_tables(asker: Asker) -> None:
    run = asker.ask(f"{RUNS}/ranks?rank=1").json()
    assert run["ranks"] == [0, 1, 2]
    assert run["rank"]["rank"] == 1
    tables = {table["name"]: table for table in run["rank"]["tables"]}
    assert set(tables) == set(TABLES)
    assert tables["steps"]["state"] == "there"
    assert tables["kernels"]["reason"]


def test_the_report_is_the_commands(asker: Asker, web_base: Path) -> None:
    from collector.format.run import open_run
    from profiler_server.report import build_report

    assert asker.ask(f"{RUNS}/team/slow/report").json() == json.loads(
        json.dumps(build_report(open_run(web_base / "team/slow")))
    )


def test_tables_are_paged(asker: Asker) -> None:
    page = asker.ask(f"{RUNS}/healthy/tables/steps?page=2&page_size=15").json()
    assert [row["step"] for row in page["rows"]] == list(range(16, 31))
    assert (page["pages"], page["total"]) == (3, 40)
    assert page["columns"][3] == {
        "name": "start_ns",
        "dtype": "int64",
        "unit": "ns",
        "meaning": "Start, since the run's epoch.",
    }


def test_csv_holds_the_same_rows(asker: Asker) -> None:
    answer = asker.ask(f"{RUNS}/healthy/tables/steps?format=csv")
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert len(rows) == 40
    assert rows[0]["communication_total_ns"] == ""
    assert int(rows[39]["step"]) == 40


def test_a_live_run_says_how_far_it_is(tmp_path: Path) -> None:
    build_run(tmp_path / "a", RunPlan(steps=5, state="recording"))
    asker = Asker(tmp_path)
    first = asker.ask(f"{RUNS}/a/live").json()
    assert (first["state"], first["steps"]) == ("recording", 5)
    assert asker.ask(f"{RUNS}/a/live").json() == first
    build_run(tmp_path / "a", RunPlan(steps=9, state="recording"))
    later = asker.ask(f"{RUNS}/a/live").json()
    assert later["steps"] == 9
    assert later["stamp"] != first["stamp"]
    assert f'data-live="{RUNS}/a/live?rank=0"' in asker.ask("/runs/a/").text


def test_a_damaged_table_is_a_409_that_names_the_file(tmp_path: Path) -> None:
    build_run(tmp_path / "a", RunPlan(steps=5))
    layout.table_file(layout.rank_path(tmp_path / "a", 0), "queues").write_bytes(b"PAR1")
    error = Asker(tmp_path).ask(f"{RUNS}/a/tables/queues").json()["error"]
    assert error["status"] == 409
    assert "queues.parquet is damaged" in error["message"]


def test_the_interface_is_described_without_another_host(asker: Asker) -> None:
    paths = asker.ask("/api/v1/openapi.json").json()["paths"]
    assert {RUNS, RUNS + "/{run_id}", RUNS + "/{run_id}/tables/{name}"} <= set(paths)
    page = asker.ask("/api/v1/docs").text
    assert f"GET {RUNS}" in page
    assert "https://" not in page


def test_a_long_table_is_streamed_and_reads_the_same(asker: Asker, monkeypatch: pytest.MonkeyPatch) -> None:
    path = "/api/v1/runs/ranks/tables/steps?page_size=13&page=1"
    whole = asker.ask(path).json()
    monkeypatch.setattr(table_routes, "BATCH_ROWS", 4)
    streamed = asker.ask(f"{path}&rank=0")
    assert "content-length" not in streamed.headers
    assert streamed.json() == whole
    assert list(streamed.json()) == list(whole)
    assert len(whole["rows"]) == 13
