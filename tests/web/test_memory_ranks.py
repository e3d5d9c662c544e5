"""Memory and resources, and Ranks over HTTP: every kind of run answers, names stay text, links keep their place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from collector.format.schema import layout
from tests.support.asking import Asker
from tests.support.live import edit_rank
from tests.support.machines import build_machine, build_memory, build_ranks, build_resources
from tests.support.row_edits import write_rows
from tests.support.runs import RunPlan, build_run, build_steps

Ask = Callable[[str], httpx.Response]
HOSTILE = "<script>alert(1)</script>\u202e名前" + "x" * 10_000


@pytest.fixture
def ask(tmp_path: Path) -> Ask:
    return Asker(tmp_path).ask


def test_an_operator_can_not_smuggle_markup_in(tmp_path: Path, ask: Ask) -> None:
    run = build_machine(tmp_path / "run")
    steps = build_steps(RunPlan(steps=200))
    folder = layout.rank_path(run, 0)
    write_rows(folder, "memory", [{**row, "operator": HOSTILE} for row in build_memory(steps)])
    samples = [{**row, "source": f"gpu {HOSTILE}"} for row in build_resources(steps, gpu=True)]
    write_rows(folder, "resources", [*build_resources(steps), *samples])
    text = ask("/runs/run/memory").text
    assert "<script>alert" not in text
    assert len(text) < 600_000


def test_the_host_of_a_rank_stays_text(tmp_path: Path, ask: Ask) -> None:
    run = build_ranks(tmp_path / "run", 2)
    edit_rank(run, 1, host=HOSTILE)
    text = ask("/runs/run/ranks").text
    assert "<script>alert" not in text
    assert len(text) < 200_000


def test_a_rank_in_the_table_is_chosen_on_this_page_and_keeps_the_order(tmp_path: Path, ask: Ask) -> None:
    build_ranks(tmp_path / "run", 4, slow=2)
    text = ask("/runs/run/ranks?sort=-own&rank=1").text
    assert 'href="/runs/run/ranks?sort=-own&amp;rank=2#table"' in text
    assert 'href="/runs/run/steps?rank=2"' in text


def test_a_range_of_steps_follows_to_the_other_pages(tmp_path: Path, ask: Ask) -> None:
    build_machine(tmp_path / "run")
    assert "/runs/run/operators?steps=50-90" in ask("/runs/run/memory?steps=50-90").text


def test_many_ranks_stay_a_small_page(tmp_path: Path, ask: Ask) -> None:
    build_ranks(tmp_path / "run", 64, slow=17, steps=60)
    answer = ask("/runs/run/ranks")
    assert "Rank 17 holds 63 others up 12.0 ms a step (15.0 %)" in answer.text
    assert len(answer.text) < 400_000


def test_the_api_compares_ranks(tmp_path: Path, ask: Ask) -> None:
    build_ranks(tmp_path / "team" / "run", 4, slow=3)
    answer = ask("/api/v1/runs/team/run/ranks").json()
    assert answer["straggler"]["rank"] == 3
    assert answer["straggler"]["phase"] == "data_wait"
    assert [rank["rank"] for rank in answer["ranks"]] == [0, 1, 2, 3]
    assert {row["wait_ns"] for row in answer["collectives"]} == {0, 72_000_000}


def test_the_api_lists_what_was_alive(tmp_path: Path, ask: Ask) -> None:
    build_machine(tmp_path / "run")
    (device,) = ask("/api/v1/runs/run/memory?most=2").json()["devices"]
    assert device["peak_bytes"] == 648 << 20
    assert [block["operator"] for block in device["live"]["blocks"]] == ["aten::mm", "aten::convolution"]


def test_the_api_refuses_bad_queries_of_memory(tmp_path: Path, ask: Ask) -> None:
    build_machine(tmp_path / "run")
    refused = {"device=7": 400, "device=x": 422, "at_ns=-1": 422, "rank=9": 404, "most=1e9": 422}
    answers = {query: ask(f"/api/v1/runs/run/memory?{query}") for query in refused}
    assert {query: answer.status_code for query, answer in answers.items()} == refused
    assert all(answer.json()["error"]["message"] for answer in answers.values())


def test_the_api_answers_404_where_nothing_was_recorded(tmp_path: Path, ask: Ask) -> None:
    build_run(tmp_path / "run", RunPlan(operators=False))
    assert ask("/api/v1/runs/run/memory").status_code == 404
