"""Diagnoses of the run list: made once, and for a run that records not at every look."""

from __future__ import annotations

from pathlib import Path

import pytest

from collector.format.parts import read_table, write_table
from collector.format.run import open_run
from collector.format.schema import layout
from profiler_server.store.catalog import Catalog
from profiler_server.store.redaction import redact
from profiler_server.web import verdicts
from profiler_server.web.shell import Panel
from profiler_server.web.verdicts import Diagnoses
from tests.support.runs import RunPlan, build_run
from tests.support.waiting import wait_for


def look(kept: Diagnoses, base: Path) -> Panel | None:
    (entry,) = Catalog(base).list_runs().runs
    return kept.peek(entry)


def wait_for_panel(kept: Diagnoses, base: Path) -> Panel:
    return wait_for(lambda: look(kept, base))


def test_a_run_that_records_is_judged_again_after_a_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Diagnoses()
    build_run(tmp_path / "live", RunPlan(steps=20, state="recording"))
    first = wait_for_panel(kept, tmp_path)
    build_run(tmp_path / "live", RunPlan(steps=30, state="recording"))
    assert look(kept, tmp_path) is first
    monkeypatch.setattr(verdicts, "RESTED_S", 0.0)
    assert look(kept, tmp_path) is None
    assert wait_for_panel(kept, tmp_path) is not first


def test_a_run_that_has_ended_is_judged_at_once(tmp_path: Path) -> None:
    kept = Diagnoses()
    build_run(tmp_path / "live", RunPlan(steps=20, state="recording"))
    first = wait_for_panel(kept, tmp_path)
    build_run(tmp_path / "live", RunPlan(steps=30))
    assert look(kept, tmp_path) is None
    assert wait_for_panel(kept, tmp_path) is not first


def test_a_change_of_another_rank_is_judged_anew(tmp_path: Path) -> None:
    """What a straggler is told by are the other ranks."""
    kept = Diagnoses()
    run = open_run(build_run(tmp_path / "ranks", RunPlan(steps=20, ranks=2)))
    first = kept.judge(run, 0)
    assert kept.judge(run, 0) is first
    table = layout.table_file(layout.rank_path(run.path, 1), "steps")
    write_table(read_table(layout.rank_path(run.path, 1), "steps").slice(0, 10), table)
    assert kept.judge(run, 0) is not first


def test_a_run_without_its_names_is_judged_apart(tmp_path: Path) -> None:
    kept = Diagnoses()
    run = open_run(build_run(tmp_path / "run", RunPlan(steps=20)))
    assert kept.judge(run, 0) is not kept.judge(redact(run), 0)
