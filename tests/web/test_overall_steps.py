"""Overall and Step trace over HTTP: every state of a run answers with a page, hostile names stay text, charts narrow."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from collector.format.run import open_run
from collector.format.schema import layout
from collector.format.schema.manifest import encode_manifest
from tests.support.asking import Asker
from tests.support.runs import MS, RunPlan, build_run, build_steps
from tests.support.tables import write_rows

Ask = Callable[[str], httpx.Response]
HOSTILE = "<script>alert(1)</script>\u202e名前" + "x" * 10_000


@pytest.fixture
def ask(tmp_path: Path) -> Ask:
    return Asker(tmp_path).ask


@pytest.mark.parametrize("page", ["", "steps"])
def test_a_run_without_tables_explains_itself(tmp_path: Path, ask: Ask, page: str) -> None:
    run = build_run(tmp_path / "run", RunPlan(steps=1))
    for file in layout.rank_path(run, 0).glob("*.parquet"):
        file.unlink()
    answer = ask(f"/runs/run/{page}")
    assert answer.status_code == 200
    assert "with Profiler(" in answer.text


def test_names_of_the_run_stay_text_and_bounded(tmp_path: Path, ask: Ask) -> None:
    run = build_run(tmp_path / "run")
    rank = open_run(run).rank(0).manifest
    loaders = (dataclasses.replace(rank.loaders[0], dataset=HOSTILE),)
    rank = dataclasses.replace(rank, forward_start=HOSTILE, backward_end=HOSTILE, point_source=HOSTILE, loaders=loaders)
    layout.rank_file(run, 0).write_text(encode_manifest(rank), encoding="utf-8")
    manifest = dataclasses.replace(open_run(run).manifest, script=HOSTILE, argv=(HOSTILE,) * 50)
    layout.run_file(run).write_text(encode_manifest(manifest), encoding="utf-8")
    for page in ("", "steps"):
        text = ask(f"/runs/run/{page}").text
        assert "<script>alert" not in text
        assert len(text) < 200_000


def test_a_chart_is_drawn_again_for_a_range(tmp_path: Path, ask: Ask) -> None:
    build_run(tmp_path / "team" / "run", RunPlan(steps=600))
    figure = ask("/api/v1/runs/team/run/charts/phases?from=100&to=120").json()
    assert figure["data"][0]["x"] == list(range(100, 121))


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("healthy/charts/nothing", 400),
        ("healthy/charts/phases?from=x", 422),
        ("healthy/charts/phases?rank=7", 404),
        ("absent/charts/phases", 404),
    ],
)
def test_a_chart_that_cannot_be_drawn_says_why(asker: Asker, path: str, status: int) -> None:
    answer = asker.ask(f"/api/v1/runs/{path}")
    assert answer.status_code == status
    assert answer.json()["error"]["message"]


def test_a_range_without_steps_is_an_empty_chart(asker: Asker) -> None:
    figure = asker.ask("/api/v1/runs/healthy/charts/duration?from=9000&to=10").json()
    assert all(trace["x"] == [] for trace in figure["data"] if trace["name"] == "step")


def test_micro_batches_and_the_step_that_carries_a_mean_are_named(tmp_path: Path) -> None:
    rows = [row | {"fetches": 4, "backwards": 4} for row in build_steps(RunPlan(steps=40))]
    rows[29]["tail_ns"] += 900 * MS
    rows[29]["duration_ns"] += 900 * MS
    write_rows(build_run(tmp_path / "run", RunPlan(steps=40)), "steps", rows)
    asker = Asker(tmp_path)
    for page in ("", "steps"):
        text = asker.ask(f"/runs/run/{page}").text
        assert "A step is 4 micro-batches" in text
        assert "mostly step 30" in text
