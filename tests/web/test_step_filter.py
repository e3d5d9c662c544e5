"""What an address chooses: the steps of the pages, and workers of a DataLoader."""

from __future__ import annotations

import csv
import gzip
import html
import io
import json
import re
from pathlib import Path

import pytest

from collector.format.lens import StepRange
from collector.format.rank import read_step_rows
from collector.format.run import open_run
from tests.support.asking import Asker
from tests.support.runs import RunPlan, build_run
from tests.support.tables import make_inference, stage, write_rows

FOLLOWING = ("", "steps", "operators", "data", "data?tab=processing", "memory")
WHOLE = ("device", "ranks", "timeline")


def with_steps(page: str, steps: str) -> str:
    return f"/runs/ranks/{page}{'&' if '?' in page else '?'}rank=1&steps={steps}"


@pytest.mark.parametrize("page", [*FOLLOWING, *WHOLE])
def test_no_link_to_another_page_of_the_run_loses_rank_or_steps(asker: Asker, page: str) -> None:
    answer = asker.ask(with_steps(page, "3-8"))
    assert answer.status_code == 200
    links = [link for link in re.findall(r'href="(/runs/ranks/[^"]*)"', answer.text) if "/window" not in link]
    assert len(links) >= 9
    assert [link for link in links if "rank=1" not in link and "rank=" not in link] == []
    keeping = [link for link in links if "steps=3-8" in link]
    # The one link that drops the filter is the one that says so.
    assert {link for link in links if link not in keeping} <= {
        link for link in links if "steps=" not in link and link.startswith(f"/runs/ranks/{page.partition('?')[0]}?")
    }


@pytest.mark.parametrize("page", FOLLOWING)
def test_a_page_says_which_steps_it_shows(asker: Asker, page: str) -> None:
    text = asker.ask(with_steps(page, "8-3")).text
    assert "Only steps <b>3–8</b> of 1–14" in text
    assert 'value="3-8"' in text


@pytest.mark.parametrize("page", WHOLE)
def test_a_page_that_shows_the_whole_run_says_so(asker: Asker, page: str) -> None:
    assert "This page shows the whole run." in asker.ask(with_steps(page, "3-8")).text


def test_figures_are_those_of_the_range(tmp_path: Path) -> None:
    build_run(tmp_path / "run", RunPlan(steps=60))
    asker = Asker(tmp_path)
    overall = asker.ask("/runs/run/?steps=20-29").text
    assert "10 steps recorded" in overall
    assert "Not in these steps: <a" in overall
    steps = asker.ask("/runs/run/steps?steps=20-29").text
    assert "The average covers all 10 steps." in steps
    data = asker.ask("/runs/run/data?steps=20-29").text
    assert "of 10 requests" in data
    assert "Means are over steps 20–29." in data


@pytest.mark.parametrize("text", ["x", "5-", "900-950", "%3Cscript%3E", "9" * 50])
def test_a_range_that_cannot_be_shown_is_told_once_and_dropped(asker: Asker, text: str) -> None:
    answer = asker.ask(f"/runs/healthy/steps?steps={text}")
    assert answer.status_code == 200
    assert answer.text.count("All steps are shown.") == 1
    assert "<script>alert" not in answer.text
    assert "steps=" not in re.sub(r'name="steps"', "", answer.text.split("<nav")[1].split("</nav>")[0])


def test_a_run_without_a_step_has_none_to_choose_from(tmp_path: Path) -> None:
    build_run(tmp_path / "run", RunPlan(steps=0))
    answer = Asker(tmp_path).ask("/runs/run/steps?steps=1-3")
    assert answer.status_code == 200
    assert "no steps to choose from" in answer.text


def build_inference(path: Path, ranks: int = 1) -> Asker:
    build_run(path / "run", RunPlan(steps=60, ranks=ranks, operators=False))
    make_inference(path / "run")
    return Asker(path)


@pytest.mark.parametrize("page", FOLLOWING)
def test_batches_of_a_run_that_only_infers_are_chosen_as_steps_are(tmp_path: Path, page: str) -> None:
    text = build_inference(tmp_path).ask(f"/runs/run/{page}{'&' if '?' in page else '?'}steps=20-29").text
    assert "Only batches <b>20–29</b> of 1–60" in text
    assert ">Batches</label>" in text
    assert "Show all batches" in text


def test_a_batch_keeps_its_number_in_a_chosen_range(tmp_path: Path) -> None:
    build_inference(tmp_path)
    rank = open_run(tmp_path / "run").rank()
    rows = read_step_rows(rank.through(StepRange(28, 33)))
    assert rows.noun == "batch"
    assert rows.steps["step"].to_pylist() == [28, 29, 30, 31, 32, 33]
    whole = read_step_rows(rank).steps.slice(27, 6)
    assert rows.steps["start_ns"].to_pylist() == whole["start_ns"].to_pylist()
    for table in ("phases", "fetches"):
        found = rank.through(StepRange(28, 33)).table(table)
        assert set(found["index"].to_pylist()) == set(whole["index"].to_pylist()), table


def test_ranks_of_a_run_that_only_infers_are_compared_by_their_batches(tmp_path: Path) -> None:
    text = build_inference(tmp_path, ranks=3).ask("/runs/run/ranks").text
    assert "Mean batch" in text
    assert "Own work, batch by batch" in text
    assert "cannot be told" in text
    main = text.split('id="content"')[1]
    assert re.findall(r"(?i)\btraining step\b|\bmean step\b|\bthe step\b", main) == []


@pytest.mark.parametrize("wait_ms", [0.04, 3.357, 144.449])
def test_the_share_of_the_wait_reads_the_same_on_every_page(tmp_path: Path, wait_ms: float) -> None:
    phases = {"gap": 0.313, "data_wait": wait_ms, "h2d": 0.549, "forward": 20.111, "backward": 36.0, "tail": 1.07}
    build_run(tmp_path / "run", RunPlan(steps=60, phases_ms=phases))
    asker = Asker(tmp_path)
    card = re.search(r"Data wait</span>\s*<span class=\"stat-value\">([^<]+)<", asker.ask("/runs/run/").text)
    part = re.search(r">Data wait</a>.*?class=\"muted\">([^<]+)<", asker.ask("/runs/run/").text, re.DOTALL)
    row = re.search(r"Data wait</th>.*?num strong.*?num\">([^<]+)<", asker.ask("/runs/run/steps").text, re.DOTALL)
    data = re.search(r"([\d.]+ %) of the step", asker.ask("/runs/run/data").text)
    assert card
    assert part
    assert row
    assert data
    shown = {float(found[1].removesuffix(" %")) for found in (card, part, row, data)}
    assert max(shown) - min(shown) < 0.051  # below 0.1 % a figure that stands alone has one digit more
    if wait_ms > 1:
        assert len(shown) == 1, shown


MS = 1_000_000
API = "/api/v1/runs/run"


@pytest.fixture(scope="module")
def chooser(tmp_path_factory: pytest.TempPathFactory) -> Asker:
    """Four workers; worker 2 takes five times as long as the others. The main process pins what they make."""
    base = tmp_path_factory.mktemp("workers")
    build_run(base / "run", RunPlan(steps=40, workers=4, pin_memory=True))
    rows = []
    for batch in range(40):
        worker, start = batch % 4, (1_000 + 60 * batch) * MS
        took = 50 * MS if worker == 2 else 10 * MS
        at = {"replica": worker, "batch": batch, "start_ns": start, "longest_ns": took, "longest_item": batch}
        rows.append(stage("read", duration_ns=took, **at))
        rows.append(stage("pin", replica=-1, batch=batch, start_ns=start + took, duration_ns=MS))
    write_rows(base / "run", "stages", rows)
    return Asker(base)


def show(chooser: Asker, workers: str) -> str:
    answer = chooser.ask(f"/runs/run/data?tab=processing&workers={workers}")
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


def test_the_page_shows_the_workers_that_are_chosen_under_their_own_numbers(chooser: Asker) -> None:
    page = show(chooser, "1-2")
    assert list_bars(page) == ["Worker 1", "Worker 2"]
    assert "The tables show workers 1–2 of 4, and the other processes." in page
    assert read_row(page, "Read")[:2] == ["2", "20"]
    assert read_row(page, "Read")[4] == "600 ms"
    assert read_row(page, "Pin")[:2] == ["1", "40"]


def test_without_a_choice_all_workers_are_there_and_each_leads_to_itself(chooser: Asker) -> None:
    page = show(chooser, "")
    assert list_bars(page) == [f"Worker {number}" for number in range(4)]
    assert read_row(page, "Read")[:2] == ["4", "40"]
    link = re.search(r'href="([^"]*)"[^>]*>Worker 2<', page)
    assert link
    assert list_bars(html.unescape(chooser.ask(link[1]).text)) == ["Worker 2"]


def test_the_queues_and_the_verdict_stay_those_of_all_workers(chooser: Asker) -> None:
    def read_graph(page: str) -> str:
        return re.sub(r'href="[^"]*"', "", page.split('id="graph-title"')[1].split("workers-title")[0])

    assert read_graph(show(chooser, "2")) == read_graph(show(chooser, ""))


def test_links_of_the_page_keep_the_choice(chooser: Asker) -> None:
    page = show(chooser, "3,0")
    queue = re.search(r'href="([^"]*queue=[^"]*)"', page)
    assert queue
    assert "workers=0%2C3" in queue[1]
    assert 'value="0,3"' in page


@pytest.mark.parametrize(
    ("workers", "why"),
    [("9", "the run has no worker 9; it has 0, 1, 2, 3"), ("x", "write such as 0,2-3"), ("3-1", "rising ranges")],
)
def test_workers_that_are_not_there_are_told_and_all_are_shown(chooser: Asker, workers: str, why: str) -> None:
    page = show(chooser, workers)
    told = re.search(r'role="alert">([^<]*)<', page)
    assert told
    assert why.replace("0,2-3", "0,2-5") in told[1]
    assert told[1].endswith("All workers are shown.")
    assert list_bars(page) == [f"Worker {number}" for number in range(4)]


def test_rows_of_some_workers_come_as_csv_and_as_json(chooser: Asker) -> None:
    page = show(chooser, "2")
    link = re.search(r'href="([^"]*)" download>Rows', page)
    assert link
    rows = list(csv.DictReader(io.StringIO(chooser.ask(link[1]).text)))
    assert {(row["stage"], row["replica"]) for row in rows} == {("read", "2"), ("pin", "-1")}
    assert len(rows) == 10 + 40
    assert chooser.ask(f"{API}/tables/stages?workers=2").json()["total"] == 50
    stages = chooser.ask(f"{API}/stages?workers=0,2").json()
    assert [row["replica"] for row in stages["workers"]] == [0, 2, -1]


def test_a_trace_has_the_rows_of_the_workers_that_are_chosen(chooser: Asker) -> None:
    link = re.search(r'href="([^"]*)" download>Trace', show(chooser, "2"))
    assert link
    answer = chooser.ask(link[1])
    assert "workers not chosen: 0, 1, 3" in answer.headers["X-Left-Out"]
    trace = json.loads(gzip.decompress(answer.content))
    names = {event["args"]["name"] for event in trace["traceEvents"] if event.get("name") == "process_name"}
    assert {name for name in names if "Worker" in name} == {"rank 0: Worker 2"}


@pytest.mark.parametrize("path", ["tables/stages?workers=7", "stages?workers=7", "timeline/export?workers=7"])
def test_the_api_refuses_a_worker_that_is_not_there(chooser: Asker, path: str) -> None:
    answer = chooser.ask(f"{API}/{path}")
    assert answer.status_code == 400
    assert "the run has no worker 7; it has 0, 1, 2, 3" in answer.json()["error"]["message"]


def test_only_the_stages_can_be_asked_for_by_worker(chooser: Asker) -> None:
    answer = chooser.ask(f"{API}/tables/queues?workers=1")
    assert answer.status_code == 400
    assert "of the table stages" in answer.json()["error"]["message"]
