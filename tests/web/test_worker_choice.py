"""Single DataLoader workers: on the Data pipeline page, in the API, as CSV and as a trace. They keep their numbers."""

from __future__ import annotations

import csv
import gzip
import html
import io
import json
import re
from pathlib import Path

import pytest

from tests.support.asking import Asker
from tests.support.runs import RunPlan, build_run
from tests.support.tables import stage, write_rows

MS = 1_000_000
API = "/api/v1/runs/run"


@pytest.fixture
def asker(tmp_path: Path) -> Asker:
    """Four workers; worker 2 takes five times as long as the others. The main process pins what they make."""
    build_run(tmp_path / "run", RunPlan(steps=40, workers=4, pin_memory=True))
    rows = []
    for batch in range(40):
        worker, start = batch % 4, (1_000 + 60 * batch) * MS
        took = 50 * MS if worker == 2 else 10 * MS
        at = {"replica": worker, "batch": batch, "start_ns": start, "longest_ns": took, "longest_item": batch}
        rows.append(stage("read", duration_ns=took, **at))
        rows.append(stage("pin", replica=-1, batch=batch, start_ns=start + took, duration_ns=MS))
    write_rows(tmp_path / "run", "stages", rows)
    return Asker(tmp_path)


def show(asker: Asker, workers: str) -> str:
    answer = asker.ask(f"/runs/run/data?tab=processing&workers={workers}")
    assert answer.status_code == 200
    return html.unescape(answer.text)


def list_bars(page: str) -> list[str]:
    return re.findall(r">(Worker \d+)<", page)


def read_row(page: str, stage_name: str) -> list[str]:
    """Return the cells of a stage's row in the totals."""
    totals = page.split("Totals by stage")[1]
    found = re.search(rf"<tr><td[^>]*><bdi>{stage_name}</bdi></td>(.*?)</tr>", totals)
    assert found
    return re.findall(r"<bdi>(.*?)</bdi>", found[1])


def test_the_page_shows_the_workers_that_are_chosen_under_their_own_numbers(asker: Asker) -> None:
    page = show(asker, "1-2")
    assert list_bars(page) == ["Worker 1", "Worker 2"]
    assert "The tables show workers 1–2 of 4, and what other processes did." in page
    assert read_row(page, "Read")[:2] == ["2", "20"]
    assert read_row(page, "Read")[4] == "600 ms"
    assert read_row(page, "Pin")[:2] == ["1", "40"]


def test_without_a_choice_all_workers_are_there_and_each_leads_to_itself(asker: Asker) -> None:
    page = show(asker, "")
    assert list_bars(page) == [f"Worker {number}" for number in range(4)]
    assert read_row(page, "Read")[:2] == ["4", "40"]
    link = re.search(r'href="([^"]*)"[^>]*>Worker 2<', page)
    assert link
    assert list_bars(html.unescape(asker.ask(link[1]).text)) == ["Worker 2"]


def test_the_queues_and_the_verdict_stay_those_of_all_workers(asker: Asker) -> None:
    def read_graph(page: str) -> str:
        return re.sub(r'href="[^"]*"', "", page.split('id="graph-title"')[1].split("workers-title")[0])

    assert read_graph(show(asker, "2")) == read_graph(show(asker, ""))


def test_links_of_the_page_keep_the_choice(asker: Asker) -> None:
    page = show(asker, "3,0")
    queue = re.search(r'href="([^"]*queue=[^"]*)"', page)
    assert queue
    assert "workers=0%2C3" in queue[1]
    assert 'value="0,3"' in page


@pytest.mark.parametrize(
    ("workers", "why"),
    [("9", "the run has no worker 9; it has 0, 1, 2, 3"), ("x", "write such as 0,2-3"), ("3-1", "rising ranges")],
)
def test_workers_that_are_not_there_are_told_and_all_are_shown(asker: Asker, workers: str, why: str) -> None:
    page = show(asker, workers)
    told = re.search(r'role="alert">([^<]*)<', page)
    assert told
    assert why.replace("0,2-3", "0,2-5") in told[1]
    assert told[1].endswith("All workers are shown.")
    assert list_bars(page) == [f"Worker {number}" for number in range(4)]


def test_rows_of_some_workers_come_as_csv_and_as_json(asker: Asker) -> None:
    page = show(asker, "2")
    link = re.search(r'href="([^"]*)" download>Rows', page)
    assert link
    rows = list(csv.DictReader(io.StringIO(asker.ask(link[1]).text)))
    assert {(row["stage"], row["replica"]) for row in rows} == {("read", "2"), ("pin", "-1")}
    assert len(rows) == 10 + 40
    assert asker.ask(f"{API}/tables/stages?workers=2").json()["total"] == 50
    stages = asker.ask(f"{API}/stages?workers=0,2").json()
    assert [row["replica"] for row in stages["workers"]] == [0, 2, -1]


def test_a_trace_has_the_rows_of_the_workers_that_are_chosen(asker: Asker) -> None:
    link = re.search(r'href="([^"]*)" download>Trace', show(asker, "2"))
    assert link
    answer = asker.ask(link[1])
    assert "workers not chosen: 0, 1, 3" in answer.headers["X-Left-Out"]
    trace = json.loads(gzip.decompress(answer.content))
    names = {event["args"]["name"] for event in trace["traceEvents"] if event.get("name") == "process_name"}
    assert {name for name in names if "Worker" in name} == {"rank 0: Worker 2"}


@pytest.mark.parametrize("path", ["tables/stages?workers=7", "stages?workers=7", "timeline/export?workers=7"])
def test_the_api_refuses_a_worker_that_is_not_there(asker: Asker, path: str) -> None:
    answer = asker.ask(f"{API}/{path}")
    assert answer.status_code == 400
    assert "the run has no worker 7; it has 0, 1, 2, 3" in answer.json()["error"]["message"]


def test_only_the_stages_can_be_asked_for_by_worker(asker: Asker) -> None:
    answer = asker.ask(f"{API}/tables/queues?workers=1")
    assert answer.status_code == 400
    assert "of the table stages" in answer.json()["error"]["message"]
