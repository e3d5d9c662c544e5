"""The timeline's page and routes."""

from __future__ import annotations

import gzip
import json
import re
import struct
from pathlib import Path
from typing import Any

import pytest

from collector.format.run import open_run
from collector.traces.importing import import_trace
from profiler_server.page import PageRequest
from profiler_server.pages.timeline import build
from tests.support.asking import Asker
from tests.support.runs import RunPlan, build_run
from tests.support.tables import write_rows
from tests.support.traces import training_steps, write_trace

API = "/api/v1/runs/healthy/timeline"


def read_meta(asker: Asker) -> dict[str, Any]:
    found: dict[str, Any] = asker.ask(f"{API}/meta").json()
    return found


def test_the_page_starts_from_metadata_that_lies_in_it(asker: Asker) -> None:
    text = asker.ask("/runs/healthy/timeline").text
    block = re.search(r'<script type="application/json" id="timeline-data">(.*?)</script>', text, re.DOTALL)
    assert block is not None
    data = json.loads(block.group(1))
    assert (data["rank"], data["ranks"]) == (0, [0])
    assert data["meta"] == read_meta(asker)
    assert f"stamp={data['meta']['stamp']}" in text
    assert "Operator time" in text


@pytest.mark.parametrize(("step", "is_there"), [("10", True), ("900", False), ("x", False)])
def test_the_page_begins_at_the_step_of_its_address(asker: Asker, step: str, is_there: bool) -> None:
    text = asker.ask(f"/runs/healthy/timeline?step={step}").text
    block = re.search(r'<script type="application/json" id="timeline-data">(.*?)</script>', text, re.DOTALL)
    assert block is not None
    assert ("span" in json.loads(block.group(1))) == is_there
    assert ("No such step" in text) != is_there


def test_a_run_without_operators_says_what_is_missing(asker: Asker) -> None:
    text = asker.ask("/runs/crashed/timeline").text
    assert "Steps, phases and the data pipeline only" in text
    assert "window=(2, 3)" in text


def test_slices_that_were_events_are_counted_apart_from_those_drawn(tmp_path: Path) -> None:
    run = import_trace(write_trace(tmp_path / "t.json", training_steps()), tmp_path / "run")
    slices = next(total for total in build(PageRequest(run, "run", 0, (0,), {})).totals if total.label == "Slices")
    assert slices.value == f"{run.rank().count_rows('slices'):,}"
    assert slices.note.endswith(" more drawn for steps, phases and busy time")


def test_the_page_says_up_to_which_step_phases_are_drawn(tmp_path: Path) -> None:
    run = build_run(tmp_path / "long", RunPlan(steps=20))
    phases = open_run(run).table("phases").to_pylist()

    def list_totals() -> dict[str, str]:
        page = build(PageRequest(open_run(run), "long", 0, (0,), {}))
        return {total.label: total.value for total in page.totals}

    assert "Phases drawn" not in list_totals()
    write_rows(run, "phases", [row for row in phases if row["step"] <= 8 or row["step"] == 15])
    assert list_totals()["Phases drawn"] == "to step 8"
    tracks = Asker(tmp_path).ask("/api/v1/runs/long/timeline/meta").json()["tracks"]
    assert [track["name"] for track in tracks if track["kind"] == "phase"] == ["Phases (to step 8)"]


def test_a_tile_is_binary_and_kept_for_ever_under_its_stamp(asker: Asker) -> None:
    meta = read_meta(asker)
    answer = asker.ask(f"{API}/tile?level={meta['topLevel']}&number=0&stamp={meta['stamp']}")
    assert answer.status_code == 200
    assert "immutable" in answer.headers["cache-control"]
    magic, slices = struct.unpack_from("<4sI", answer.content)
    assert magic == b"TLT1"
    assert 0 < slices <= meta["slices"]


def test_search_leads_to_a_slice_and_its_details(asker: Asker) -> None:
    found = asker.ask(f"{API}/search?q=MAX_POOL").json()
    assert (found["count"], found["names"], found["number"]) == (3, 1, 1)
    details = asker.ask(f"{API}/slice?id={found['hit']['id']}").json()
    assert (details["whole"], details["category"]) == ("aten::max_pool2d_with_indices", "operator")
    assert (details["step"], details["length"]) == (10, 1_500_000)
    assert details["kind"]["count"] == 3


def test_a_run_without_device_work_has_no_critical_path(asker: Asker) -> None:
    answer = asker.ask(f"{API}/critical?rank=0")
    assert (answer.status_code, answer.json()) == (200, {"starts": [], "ends": [], "lanes": []})


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("tile?level=3&number=0", 400),
        ("tile?level=999&number=0", 422),
        ("tile?level=20&number=-1", 422),
        ("tile?level=22&number=0&stamp=0123456789abcdef", 409),
        ("tile?level=22&number=0&stamp=../../etc", 422),
        ("meta?rank=7", 404),
        ("meta?rank=x", 422),
        ("slice?id=99999999", 404),
        ("search?q=" + "x" * 300, 422),
        ("search?q=a&start=1e99", 422),
        ("export?steps=900", 400),
        ("export?steps=a-b", 400),
        ("export?detail=everything", 422),
    ],
)
def test_what_cannot_be_answered_says_so(asker: Asker, query: str, status: int) -> None:
    answer = asker.ask(f"{API}/{query}")
    assert answer.status_code == status
    assert answer.json()["error"]["message"]


def test_a_tile_far_beyond_the_end_is_empty(asker: Asker) -> None:
    meta = read_meta(asker)
    answer = asker.ask(f"{API}/tile?level={meta['topLevel']}&number=100000")
    assert struct.unpack_from("<4s3I", answer.content)[1:3] == (0, 0)


def test_the_download_is_a_trace_and_says_what_it_lacks(asker: Asker) -> None:
    answer = asker.ask("/api/v1/runs/team/slow/timeline/export?steps=10-12")
    assert 'filename="slow-rank0.json.gz"' in answer.headers["content-disposition"]
    assert "outside of the chosen steps" in answer.headers["x-left-out"]
    trace = json.loads(gzip.decompress(answer.content))
    assert {e["name"] for e in trace["traceEvents"] if e.get("cat") == "step"} == {"Step 10", "Step 11", "Step 12"}
    assert trace["metadata"]["run"] == "slow"


def test_a_download_of_more_than_a_viewer_opens_is_refused(asker: Asker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("profiler_server.web.routes.timeline._MOST_EXPORTED", 10)
    answer = asker.ask(f"{API}/export")
    assert answer.status_code == 400
    assert "zoom in" in answer.json()["error"]["message"]
    assert asker.ask(f"{API}/export?begin=0&end=1").status_code == 200
