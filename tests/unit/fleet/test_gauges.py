"""Which runs monitoring is told of, and which figures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from collector.format import parts
from collector.format.recent import RECENT_STEPS
from collector.format.schema import layout
from collector.format.schema.manifest import Warn, Window
from profiler_server.fleet.gauges import LONGEST_LABEL, Gauges, RunGauges, make_label
from profiler_server.store.catalog import Catalog
from tests.support.live import build_ended_run, build_live_run, edit_rank
from tests.support.runs import HEALTHY_STEP_MS, MS, RunPlan, build_run, build_steps
from tests.support.waiting import wait_for


def read(base: Path) -> dict[str, RunGauges]:
    catalog = Catalog(base)
    catalog.list_runs()  # the first reading lists runs for a second at most
    return {run.label: run for run in Gauges(catalog).read()}


def write_steps(run: Path, rank: int, rows: list[dict[str, Any]]) -> None:
    path = layout.table_file(layout.rank_path(run, rank), "steps")
    parts.write_table(parts.build_table_from_rows("steps", rows), path)


def test_runs_that_record_or_ended_within_fifteen_minutes_are_told(tmp_path: Path) -> None:
    build_live_run(tmp_path / "now")
    build_ended_run(tmp_path / "lately", ago_s=60)
    build_ended_run(tmp_path / "before", ago_s=3600)
    build_run(tmp_path / "trace", RunPlan(state="imported"))
    found = read(tmp_path)
    assert {name: run.state for name, run in found.items()} == {"now": "recording", "lately": "complete"}


def test_figures_are_of_the_last_steps_without_detailed_windows(tmp_path: Path) -> None:
    run = build_live_run(tmp_path / "now", steps=200)
    rows = build_steps(RunPlan(steps=200))
    for row in rows[: 200 - RECENT_STEPS]:
        row["duration_ns"] = 1000 * MS
    write_steps(run, 0, rows)
    gauges = read(tmp_path)["now"]
    assert gauges.steps == 200
    assert gauges.step_ns == pytest.approx(sum(HEALTHY_STEP_MS.values()) * MS, rel=0.01)
    assert sum((gauges.phases_ns or {}).values()) == pytest.approx(gauges.step_ns)
    assert gauges.data_wait_frac == pytest.approx(
        HEALTHY_STEP_MS["data_wait"] / sum(HEALTHY_STEP_MS.values()), rel=0.01
    )
    assert (gauges.slowest_rank, gauges.slowdown_ratio) == (None, None)


def test_the_warm_up_of_a_short_run_is_in_no_mean(tmp_path: Path) -> None:
    run = build_live_run(tmp_path / "now", steps=30)
    rows = build_steps(RunPlan(steps=30))
    rows[0]["duration_ns"] = 2000 * MS
    write_steps(run, 0, rows)
    assert read(tmp_path)["now"].step_ns == pytest.approx(sum(HEALTHY_STEP_MS.values()) * MS, rel=0.01)


def test_steps_beside_the_reading_of_a_window_are_in_no_mean(tmp_path: Path) -> None:
    run = build_live_run(tmp_path / "now", steps=200)
    rows = build_steps(RunPlan(steps=200))
    for row in rows[190:194]:
        row["duration_ns"] = 500 * MS
    write_steps(run, 0, rows)
    begin_ns, end_ns = rows[190]["start_ns"], rows[194]["start_ns"]
    edit_rank(run, windows=(Window(180, 182, 0, 1, read_start_ns=begin_ns, read_end_ns=end_ns),))
    assert read(tmp_path)["now"].step_ns == pytest.approx(sum(HEALTHY_STEP_MS.values()) * MS, rel=0.01)


def test_the_slowest_rank_is_that_with_most_work_of_its_own(tmp_path: Path) -> None:
    run = build_live_run(tmp_path / "now", ranks=4)
    # The others wait for rank 2 in a collective, so that all steps are equally long.
    held = {**HEALTHY_STEP_MS, "communication": 32.0}
    busy = {**HEALTHY_STEP_MS, "forward": HEALTHY_STEP_MS["forward"] + 32.0}
    for rank in range(4):
        write_steps(run, rank, build_steps(RunPlan(phases_ms=busy if rank == 2 else held)))
    gauges = read(tmp_path)["now"]
    assert (gauges.ranks, gauges.slowest_rank) == (4, 2)
    assert gauges.slowdown_ratio == pytest.approx(1.5, rel=0.01)


def test_a_rank_that_evaluates_while_the_others_wait_is_the_slowest(tmp_path: Path) -> None:
    run = build_live_run(tmp_path / "now", ranks=3)
    for rank in range(3):
        rows = build_steps(RunPlan(phases_ms={**HEALTHY_STEP_MS, "communication": 1.0 if rank == 1 else 5.0}))
        evaluation = {"kind": "eval", "step": 30, "index": 30, "duration_ns": 160 * MS, "detailed": False}
        write_steps(run, rank, [*rows[:30], {**rows[29], **evaluation}, *rows[30:]] if rank == 1 else rows)
    gauges = read(tmp_path)["now"]
    assert gauges.slowest_rank == 1
    assert gauges.slowdown_ratio == pytest.approx(1 + 160 / 37 / sum(HEALTHY_STEP_MS.values()), rel=0.01)


def test_a_job_whose_waiting_was_not_seen_has_no_slowest_rank(tmp_path: Path) -> None:
    run = build_live_run(tmp_path / "now", ranks=2)
    for rank in range(2):
        write_steps(run, rank, build_steps(RunPlan(phases_ms={**HEALTHY_STEP_MS, "forward": 20.0 + rank})))
    assert read(tmp_path)["now"].slowest_rank is None


def test_a_standstill_that_the_job_got_over_is_in_no_mean(tmp_path: Path) -> None:
    run = build_live_run(tmp_path / "now")
    rows = build_steps(RunPlan())
    rows[30]["duration_ns"] += 20_000 * MS
    write_steps(run, 0, rows)
    stood = {"step": rows[30]["step"], "for_ns": 20_000 * MS, "ended_unix_ns": 1}
    edit_rank(run, 0, facts={"standstills": [stood]})
    gauges = read(tmp_path)["now"]
    assert gauges.step_ns == pytest.approx(sum(HEALTHY_STEP_MS.values()) * MS, rel=0.02)


def test_what_was_lost_is_summed_over_the_ranks(tmp_path: Path) -> None:
    run = build_live_run(tmp_path / "now", ranks=2)
    edit_rank(run, 0, events_lost=5)
    edit_rank(run, 1, events_lost=7, warnings=(Warn("steps_lost", "Some."),))
    gauges = read(tmp_path)["now"]
    assert (gauges.events_lost, gauges.ranks_losing_steps) == (12, 1)


def test_a_rank_that_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    run = build_live_run(tmp_path / "now", ranks=3)
    layout.table_file(layout.rank_path(run, 1), "steps").write_bytes(b"PAR1 and no more")
    layout.rank_file(run, 2).write_text("{", encoding="utf-8")
    gauges = read(tmp_path)["now"]
    assert gauges.step_ns is not None
    assert gauges.ranks == 3


def test_a_run_without_steps_has_a_state_and_no_times(tmp_path: Path) -> None:
    run = build_live_run(tmp_path / "now")
    layout.table_file(layout.rank_path(run, 0), "steps").unlink()
    gauges = read(tmp_path)["now"]
    assert (gauges.state, gauges.step_ns, gauges.data_wait_frac) == ("recording", None, None)


def test_labels_are_bounded_printable_and_unlike_each_other() -> None:
    odd = ["a" * 500, "a" * 501, "a\nb", "a\rb", "a?b", "\ud800", "run \x00"]
    labels = [make_label(run) for run in odd]
    assert len(set(labels)) == len(odd)
    assert all(label.isprintable() and len(label) <= LONGEST_LABEL for label in labels)
    assert make_label("team/größe 1") == "team/größe 1"


def test_the_last_rows_of_parts_and_of_row_groups_are_read(tmp_path: Path) -> None:
    rows = build_steps(RunPlan(steps=90))
    for part in range(3):
        table = parts.build_table_from_rows("steps", rows[30 * part : 30 * part + 30])
        path = layout.table_parts_folder(tmp_path, "steps") / f"{part:06d}.parquet"
        parts.write_table(table, path, row_group_rows=7)
    for count, first in ((1, 90), (40, 51), (90, 1), (500, 1)):
        found = parts.read_last_rows(tmp_path, "steps", ("step", "duration_ns"), count)
        assert found["step"].to_pylist() == list(range(first, 91))
    assert parts.read_last_rows(tmp_path, "steps", ("kind",), 3) == parts.read_table(tmp_path, "steps", ["kind"]).slice(
        87
    )


def test_of_very_many_ranks_some_are_told_at_once_and_all_of_them_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = build_live_run(tmp_path / "now", ranks=5)
    held = {**HEALTHY_STEP_MS, "communication": 32.0}
    busy = {**HEALTHY_STEP_MS, "forward": HEALTHY_STEP_MS["forward"] + 32.0}
    for rank in range(5):
        write_steps(run, rank, build_steps(RunPlan(phases_ms=busy if rank == 4 else held)))
    for name, value in {"FEW_RANKS": 2, "READ_LIMIT_S": -1.0, "REFRESH_S": -1.0}.items():
        monkeypatch.setattr(f"profiler_server.fleet.gauges.{name}", value)
    gauges = Gauges(Catalog(tmp_path))
    first = found = gauges.read()[0]
    assert (first.ranks, first.ranks_read) == (5, 2)
    found = wait_for(lambda: now if (now := gauges.read()[0]).ranks_read == 5 else None)
    assert found.slowest_rank == 4
    assert found.slowdown_ratio == pytest.approx(1.5, rel=0.01)


def test_ranks_that_an_answer_had_no_time_for_are_told_before_figures_are_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_live_run(tmp_path / "now", ranks=9)
    for name, value in {"FEW_RANKS": 1, "READ_LIMIT_S": -1.0, "REFRESH_S": 3600.0}.items():
        monkeypatch.setattr(f"profiler_server.fleet.gauges.{name}", value)
    gauges = Gauges(Catalog(tmp_path))
    assert gauges.read()[0].ranks_read == 1
    wait_for(lambda: gauges.read()[0].ranks_read == 9)
