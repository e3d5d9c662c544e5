"""Damaged runs and wrong addresses: what is left is shown, and each message says what is the matter."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from collector import open_run
from collector.format.schema import layout
from profiler_server.web.answers import describe_error
from profiler_server.web.frontend import format_clock
from tests.support.asking import Asker
from tests.support.runs import RunPlan, build_run


@pytest.fixture
def client(tmp_path: Path) -> Asker:
    for name in ("run", "hurt"):
        build_run(tmp_path / name, RunPlan(steps=12))
    build_run(tmp_path / "long", RunPlan(steps=60))
    steps = layout.table_file(layout.rank_path(tmp_path / "hurt", 0), "steps")
    steps.write_bytes(steps.read_bytes()[:500])
    return Asker(tmp_path)


def test_the_timeline_shows_what_is_left_with_a_notice(client: Asker) -> None:
    answer = client.ask("/runs/hurt/timeline")
    assert answer.status_code == 200
    assert "Damaged: steps." in answer.text
    assert "Phases" in answer.text


def test_a_crashed_run_that_was_assembled_is_not_sent_to_recovery_again(asker: Asker) -> None:
    text = asker.ask("/runs/crashed/").text
    assert "All that it left is shown." in text
    assert "profiler-server recover" not in text


def test_a_crashed_run_says_up_to_when_it_is_recorded_and_how_often_it_was_flushed(tmp_path: Path) -> None:
    build_run(tmp_path / "run", RunPlan(steps=12, state="crashed"))
    manifest = tmp_path / "run" / "profiler" / "rank_0" / "rank.json"
    epoch_ns = open_run(tmp_path / "run").manifest.epoch_unix_ns
    raw = {**json.loads(manifest.read_text()), "recorded_until_ns": 90_000_000_000, "flush_s": 3.0}
    manifest.write_text(json.dumps(raw))
    text = " ".join(Asker(tmp_path).ask("/runs/run/").text.split())
    assert f"It is recorded up to {format_clock(epoch_ns + 90_000_000_000)}" in text
    assert "written to the disk every 3 s." in text


def test_overall_and_timeline_count_the_same_operators(client: Asker, tmp_path: Path) -> None:
    operators = open_run(tmp_path / "run").frame("operators")
    executions = (
        f"{len(operators):,} execution" if "count" not in operators else f"{operators['count'].sum():,} execution"
    )
    assert executions in client.ask("/runs/run/timeline").text


@pytest.mark.parametrize("page", ["", "steps", "data", "memory"])
def test_pages_spell_the_command_in_full(client: Asker, tmp_path: Path, page: str) -> None:
    text = client.ask(f"/runs/hurt/{page}").text
    assert "recover RUN" not in text
    if page in ("", "steps"):
        assert f"profiler-server recover {tmp_path / 'hurt'}" in text


@pytest.mark.parametrize(
    ("address", "title", "cause"),
    [
        ("/runs/run/nope", "Not in this run", "There is no page"),
        ("/runs/run/?rank=7", "Not in this run", "There is no rank 7"),
        ("/runs/nope/", "No such run", "There is no run"),
    ],
)
def test_an_unknown_run_page_or_rank_says_which_it_is(client: Asker, address: str, title: str, cause: str) -> None:
    answer = client.ask(address)
    assert answer.status_code == 404
    assert title in answer.text
    assert cause in answer.text


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
