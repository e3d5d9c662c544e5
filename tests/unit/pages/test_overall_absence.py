"""The Overall page of a run that lacks something: each card stands or says why it is empty."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from collector.format.run import open_run
from collector.format.schema import layout
from collector.format.schema.manifest import Signal, encode_manifest
from profiler_server.pages.overall import Panel, build_panel
from tests.support.overall_page import show, stat
from tests.support.runs import RunPlan, build_run


def test_a_part_that_was_switched_off_names_the_option(tmp_path: Path) -> None:
    run = build_run(tmp_path / "run", RunPlan(operators=False))
    rank = open_run(run).rank(0)
    off = Signal("window", "off", "Detailed windows were switched off with window=None.")
    manifest = dataclasses.replace(rank.manifest, signals=(off,), windows=())
    layout.rank_file(run, 0).write_text(encode_manifest(manifest), encoding="utf-8")
    page = show(run)
    assert page.operators_card.notice is not None
    assert (page.operators_card.notice.state, page.operators_card.notice.reason) == ("off", off.reason)
    assert page.data_card.body is not None
    assert any(fact.label == "Not collected" and "window=None" in fact.value for fact in page.facts)


@pytest.mark.parametrize("table", ["operators", "slices", "stages", "steps"])
def test_one_damaged_table_leaves_the_other_cards(tmp_path: Path, table: str) -> None:
    run = build_run(tmp_path / "run")
    layout.table_file(layout.rank_path(run, 0), table).write_bytes(b"PAR1 not a table")
    page = show(run)
    cards: dict[str, Panel[Any]] = {
        "operators": page.operators_card,
        "slices": page.timeline_card,
        "stages": page.data_card,
        "steps": page.steps_card,
    }
    failed = {name for name, card in cards.items() if card.notice is not None}
    assert table in failed
    assert failed <= {table, "slices"} if table == "operators" else failed == {table}
    notice = cards[table].notice
    assert notice is not None
    assert (notice.state, f"{table}" in notice.reason) == ("failed", True)


def test_a_fault_in_one_card_becomes_its_notice() -> None:
    def fail() -> str:
        raise ZeroDivisionError("division by zero")

    panel = build_panel("Operators", fail)
    assert panel.body is None
    assert panel.notice is not None
    assert "ZeroDivisionError" in panel.notice.reason


def test_a_run_without_steps_has_notices_and_facts(tmp_path: Path) -> None:
    run = build_run(tmp_path / "run", RunPlan(steps=1))
    for file in layout.rank_path(run, 0).glob("*.parquet"):
        file.unlink()
    page = show(run)
    assert page.stats.body is None
    assert {panel.notice is not None for panel in (page.step, page.steps_card, page.data_card)} == {True}
    assert any(fact.label == "DataLoader" for fact in page.facts)


def test_the_only_step_is_no_mean_and_has_no_percentiles(tmp_path: Path) -> None:
    page = show(build_run(tmp_path / "run", RunPlan(steps=1, operators=False)))
    assert stat(page, "The only step") != "n/a"
    assert page.step.body is not None
    assert page.step.body.sentence.startswith("The only step, recorded")
    assert page.steps_card.body is not None
    assert "p95" not in page.steps_card.body.sentence
