"""Several ranks on one timeline over HTTP: their clocks, and the download."""

from __future__ import annotations

import gzip
import json
import re
import shutil
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from collector.format.schema import layout
from collector.traces.importing import import_trace
from tests.support.asking import Asker
from tests.support.jobs import STEP_NS, JobPlan, make_job, write_job
from tests.support.runs import RunPlan, build_run
from tests.unit.analysis.ranks.test_imported_ranks import HOUR_US, write_ranks

HOUR_NS = 3_600_000_000_000
PLAN = JobPlan(ranks=4, steps=24, slow=(2,), slow_frac=0.3, ranks_per_host=1, apart_ns=3 * HOUR_NS, drift=2e-5)


@pytest.fixture(scope="module")
def asker(tmp_path_factory: pytest.TempPathFactory) -> Asker:
    base = tmp_path_factory.mktemp("together")
    write_job(base / "job", PLAN)
    write_job(base / "mute", JobPlan(ranks=2, steps=5, ranks_per_host=1))
    shutil.rmtree(layout.rank_path(base / "mute", 1) / "collectives", ignore_errors=True)
    layout.table_file(layout.rank_path(base / "mute", 1), "collectives").unlink(missing_ok=True)
    write_job(base / "broken", JobPlan(ranks=3, steps=5))
    layout.rank_file(base / "broken", 1).write_text("{")
    build_run(base / "one", RunPlan())
    return Asker(base)


def read(asker: Asker, path: str) -> Any:
    answer = asker.ask(path)
    assert answer.status_code == 200, answer.text
    return answer.json()


def read_page(asker: Asker, path: str) -> tuple[str, dict[str, Any]]:
    text = asker.ask(path).text
    found = re.search(r'id="timeline-data">(.*?)</script>', text, re.DOTALL)
    return text, json.loads(found[1]) if found else {}


def test_clocks_that_are_hours_apart_are_aligned_and_the_answer_says_how_well(asker: Asker) -> None:
    found = read(asker, "/api/v1/runs/job/timeline/clocks?ranks=2,0")
    first, other = found["clocks"]
    assert (first["rank"], first["known"], first["shift"]) == (2, "reference", 0)
    assert (other["rank"], other["known"], other["calls"]) == (0, "aligned", 24)
    ends = make_job(PLAN).end_ns
    for at in (0, 23):
        time = int(ends[0].ravel()[at])
        placed = time + other["shift"] + other["drift"] * (time - other["anchor"])
        assert placed == pytest.approx(int(ends[2].ravel()[at]), abs=30_000)
    assert re.fullmatch(
        r"The clocks agree within [\d.]+ µs at the 95th percentile of 24 collectives\. Times are those of rank 2; "
        r"shifted: rank 0 by [+−][\d,.]+ s( \([+−][\d.]+ [mµ]s a minute\))?\.",
        found["sentence"],
    )


def test_a_rank_without_collectives_is_shown_from_its_own_start_and_the_page_says_so(asker: Asker) -> None:
    text, data = read_page(asker, "/runs/mute/timeline?ranks=0,1")
    assert [clock["known"] for clock in data["clocks"]] == ["reference", "unknown"]
    assert "The clock of rank 1 cannot be aligned (no collective was recorded on both sides)" in text


def test_a_rank_that_cannot_be_read_harms_no_other(asker: Asker) -> None:
    text, data = read_page(asker, "/runs/broken/timeline?ranks=0,1,2")
    assert data["ranks"] == [0, 1, 2]
    assert [clock["known"] for clock in data["clocks"]] == ["reference", "unknown", "host"]
    assert "Not shown, because it cannot be read: rank 1." in text
    assert asker.ask("/runs/broken/ranks").status_code == 200


def test_the_address_chooses_ranks_and_their_order(asker: Asker) -> None:
    _, data = read_page(asker, "/runs/job/timeline?ranks=2,0-1,2")
    assert (data["ranks"], data["rank"], data["together"]) == ([2, 0, 1], 2, True)
    _, data = read_page(asker, "/runs/job/timeline?ranks=2,0&rank=3")
    assert (data["ranks"], data["rank"]) == ([3, 2, 0], 3)
    _, data = read_page(asker, "/runs/job/timeline")
    assert (data["ranks"], data["together"], data["clocks"]) == ([0, 1, 2, 3], False, [])


@pytest.mark.parametrize("ranks", ["9", "x", "3-1", ",", "0-999999999999", "<script>", "1" * 190])
def test_ranks_that_are_not_there_are_told_and_the_usual_page_shows(asker: Asker, ranks: str) -> None:
    text, data = read_page(asker, f"/runs/job/timeline?ranks={ranks.replace('<', '%3C')}")
    assert "These ranks cannot be shown together" in text
    assert data["together"] is False
    assert '<script>"' not in text
    assert asker.ask(f"/api/v1/runs/job/timeline/clocks?ranks={ranks.replace('<', '%3C')}").status_code in (400, 422)


def test_the_download_of_a_window_has_one_process_per_rank_on_one_clock(asker: Asker) -> None:
    job = make_job(PLAN)
    begin, end = int(job.start_ns[2, 5]), int(job.start_ns[2, 8])
    query = f"ranks=2,0,3&one_clock=true&begin={begin}&end={end}"
    answer = asker.ask(f"/api/v1/runs/job/timeline/export?{query}")
    assert answer.status_code == 200
    trace = json.loads(gzip.decompress(answer.content))
    names = {e["pid"]: e["args"]["name"] for e in trace["traceEvents"] if e.get("name") == "process_name"}
    assert sorted(names.values()) == ["rank 0", "rank 2", "rank 3"]
    ends: dict[int, list[float]] = defaultdict(list)
    for event in trace["traceEvents"]:
        if event["ph"] == "X" and event["name"] == "allreduce":
            ends[event["pid"]].append(1e3 * (event["ts"] + event["dur"]))
    assert len(ends) == 3
    (first, *others) = (sorted(found) for found in ends.values())
    assert len(first) == 3
    for other in others:
        assert other == pytest.approx(first, abs=40_000)
    assert [clock["rank"] for clock in trace["metadata"]["clocks"]] == [2, 0, 3]
    assert "stepscope" not in trace
    assert "the tables themselves" in answer.headers["x-left-out"]


def test_ranks_without_a_common_clock_begin_together_in_the_download(asker: Asker) -> None:
    answer = asker.ask("/api/v1/runs/mute/timeline/export?one_clock=true&packed=json")
    begins: dict[int, float] = {}
    for event in answer.json()["traceEvents"]:
        if event["ph"] == "X":
            begins[event["pid"]] = min(begins.get(event["pid"], float("inf")), event["ts"])
    assert len(begins) == 2
    assert len({round(begin, 3) for begin in begins.values()}) == 1
    assert "the clock of rank 1, which is not known" in answer.headers["x-left-out"]


def test_the_ranks_page_links_to_the_slow_rank_and_those_that_wait_for_it(asker: Asker) -> None:
    text = asker.ask("/runs/job/ranks").text
    found = re.search(r'href="([^"]*)">Timeline of these ranks', text)
    assert found is not None
    address = found[1].replace("&amp;", "&")
    assert re.fullmatch(r"/runs/job/timeline\?rank=2&ranks=2%2C\d%2C\d&step=\d+", address)
    _, data = read_page(asker, address)
    assert data["rank"] == 2
    assert data["span"][1] - data["span"][0] < 3 * STEP_NS


def test_traces_whose_clocks_are_hours_apart_are_aligned_by_their_kernels(tmp_path: Path) -> None:
    import_trace(write_ranks(tmp_path / "traces", ranks=3, apart_us=HOUR_US), tmp_path / "base" / "nccl")
    _, data = read_page(Asker(tmp_path / "base"), "/runs/nccl/timeline?ranks=0,2")
    assert (data["clocks"][1]["known"], data["clocks"][1]["calls"]) == ("aligned", 12)


def test_traces_without_steps_are_aligned_by_their_collectives(tmp_path: Path) -> None:
    folder = write_ranks(tmp_path / "traces", ranks=2, apart_us=HOUR_US)
    for path in folder.iterdir():
        path.write_text(path.read_text().replace("ProfilerStep#", "part "))
    import_trace(folder, tmp_path / "base" / "bare")
    _, data = read_page(Asker(tmp_path / "base"), "/runs/bare/timeline?ranks=0,1")
    assert data["clocks"][1]["known"] == "aligned"
