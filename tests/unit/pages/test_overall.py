"""The Overall page as a context: figures, cards, facts, and what is said where something is lacking."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from collector.format.run import open_run
from collector.format.schema import layout
from collector.format.schema.manifest import Device, Signal, Window
from collector.traces.importing import import_trace
from profiler_server.page import PageRequest
from profiler_server.pages.overall import Panel
from profiler_server.pages.overall.facts import list_facts
from profiler_server.pages.timeline import build as build_timeline
from tests.support.cases import Plant, build_case_run
from tests.support.live import edit_rank
from tests.support.must import must
from tests.support.overall_page import show, stat
from tests.support.row_edits import rest_between_epochs
from tests.support.runs import MS, RunPlan, build_run, slow_loader_plan
from tests.support.traces import call, kernel, operator, step, training_steps, write_trace


def test_the_tiles_say_step_time_rate_wait_and_cost(tmp_path: Path) -> None:
    page = show(build_run(tmp_path / "run"))
    assert stat(page, "Mean step") == "64.0 ms"
    assert stat(page, "Throughput") == "500 /s"
    assert stat(page, "Data wait") == "0.6 %"
    assert stat(page, "Recording cost") == "21.0 µs"
    assert page.stats.body is not None
    (cost,) = (entry for entry in page.stats.body if entry.label == "Recording cost")
    assert cost.note.endswith("0.03 % of the mean step")  # 21.0 µs of 64.0 ms


def test_the_mean_leaves_out_steps_beside_the_reading_of_a_window_that_are_not_called_detailed(tmp_path: Path) -> None:
    run = build_run(tmp_path / "run", RunPlan(steps=30))
    steps = open_run(run).rank().table("steps", ["step", "start_ns"]).to_pylist()
    starts = {row["step"]: row["start_ns"] for row in steps}
    edit_rank(run, windows=(Window(10, 12, starts[10], starts[13], read_start_ns=starts[14], read_end_ns=starts[16]),))
    sentence = must(show(run).step.body).sentence
    assert "(5 steps left out: detailed windows)" in sentence
    assert sentence.endswith("from the detailed steps 10–12.")


def test_the_stage_that_limits_the_step_is_marked(tmp_path: Path) -> None:
    slow, healthy = (
        must(show(build_run(tmp_path / name, plan)).data_card.body).limiting
        for name, plan in (("slow", slow_loader_plan("transform")), ("healthy", RunPlan()))
    )
    assert (slow, healthy) == ("transform", None)


def test_operators_are_ranked_and_small_types_are_added_up(tmp_path: Path) -> None:
    card = show(build_run(tmp_path / "run")).operators_card.body
    assert card is not None
    name, _, share_frac = card.top[0]
    assert (name, round(share_frac, 2)) == ("aten::convolution_backward", 0.45)
    assert card.measure == "host self time"


def test_the_timeline_card_counts_as_the_timeline_page_does(tmp_path: Path) -> None:
    launches = [call(20 + at, 2, at) for at in range(1, 4)]
    kernels = [kernel("gemm", 100 * at, 90, at) for at in range(1, 4)]
    events = [step(1, 0, 500), operator("aten::mm", 10, 30), *launches, *kernels]
    run = import_trace(write_trace(tmp_path / "trace.json", events), tmp_path / "run").path
    card = show(run).timeline_card.body
    request = PageRequest(open_run(run), "run", 0, (0,), {})
    totals = {total.label: total for total in build_timeline(request).totals}
    assert card is not None
    shown = {figure.label: figure.value for figure in card.figures}
    assert shown["Operator time, host"] == totals["Operator time"].value
    assert (shown["Operators"], shown["Executions"]) == (totals["Operators"].value, "1")
    assert totals["Operators"].note == "1 execution"


def test_a_device_without_a_window_has_no_tile_and_no_zero(tmp_path: Path) -> None:
    run = build_run(tmp_path / "run", RunPlan(operators=False))
    edit_rank(run, devices=(Device(0, "NVIDIA H100 80GB HBM3", memory_bytes=80 << 30),))
    page = show(run)
    assert "Device busy" not in {tile.label for tile in must(page.stats.body)}
    assert any(fact.value == "0: NVIDIA H100 80GB HBM3, 80.0 GiB" for fact in page.facts)


def test_a_device_that_the_trace_does_not_name_is_told_by_its_number(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "trace.json", [call(20, 2, 1), kernel("gemm", 30, 90, 1)], {"deviceProperties": []})
    page = show(import_trace(path, tmp_path / "run").path)
    assert [fact.value for fact in page.facts if fact.label == "Device"] == ["0: a GPU that the trace does not name"]


def test_an_import_says_once_what_a_trace_does_not_tell_and_no_host(tmp_path: Path) -> None:
    run = import_trace(write_trace(tmp_path / "trace.json", training_steps()), tmp_path / "run").path
    facts = [fact for fact in show(run).facts if fact.label in ("Host", "Not collected")]
    assert [fact.label for fact in facts] == ["Not collected"]
    assert "fetches, queues, stages" in facts[0].value


def test_a_window_that_opened_by_itself_says_why(tmp_path: Path) -> None:
    path = build_run(tmp_path / "run")
    window = dataclasses.replace(open_run(path).rank(0).manifest.windows[0], trigger="outlier")
    entries = [{"trigger": "outlier", "step": 7, "at_ns": 1, "text": "step 7 took 6.1× the median"}, "damaged"]
    edit_rank(path, windows=(window,), facts={"triggers": entries})
    step = show(path).step.body
    assert step is not None
    assert step.sentence.endswith("The window at step 10 opened by itself: step 7 took 6.1× the median.")


def test_what_was_compiled_and_what_held_the_training_up_are_facts(tmp_path: Path) -> None:
    made = {"step": 3, "start_ns": 1100 * MS, "name": "forward (model.py:3)"}
    kinds = (("compile", 900), ("recompile", 200), ("recompile", 100), ("graph_break", 0))
    saved = {"id": 0, "name": "torch.save", "path": "torch.save", "thread_id": 1, "failed": False, "training": True}
    tables = {
        "compiles": [{**made, "kind": kind, "duration_ns": length * MS} for kind, length in kinds],
        "ranges": [{**saved, "start_ns": 1200 * MS, "duration_ns": 320 * MS}],
    }
    facts = {fact.label: fact.value for fact in show(build_case_run(tmp_path / "run", Plant(tables=tables)).path).facts}
    assert facts["torch.compile"] == "1 compilation (900 ms), 2 recompilations (300 ms), 1 graph break"
    assert facts["Held up by"] == "checkpoint (torch.save), 1 time, 320 ms in all"


def test_what_passed_between_epochs_is_said_beside_the_mean_step(tmp_path: Path) -> None:
    page = show(build_case_run(tmp_path / "run", Plant(RunPlan(steps=40), edit=rest_between_epochs(10, 100.0))).path)
    assert page.step.body is not None
    assert page.step.body.beside == (
        "The mean step does not hold what passed between epochs: 300 ms, 10.5 % of the recorded time."
    )
    assert "time between epochs, 3 times, 300 ms in all" in [fact.value for fact in page.facts]
    usual = show(build_run(tmp_path / "usual")).step.body
    assert usual is not None
    assert usual.beside == ""


def test_the_timeline_card_names_every_window(tmp_path: Path) -> None:
    path = build_run(tmp_path / "run")
    (window,) = open_run(path).rank(0).manifest.windows
    edit_rank(path, windows=(window, dataclasses.replace(window, first_step=30, last_step=31)))
    card = show(path).timeline_card.body
    assert card is not None
    assert card.covered == "steps 10–12, 30–31"


def test_devices_that_are_alike_share_a_line(tmp_path: Path) -> None:
    run = open_run(build_run(tmp_path / "run"))
    devices = tuple(Device(index, "Tesla V100", memory_bytes=(16 << 30) - index) for index in range(4))
    facts = list_facts(run.manifest, dataclasses.replace(run.rank(0).manifest, devices=devices), 1)
    assert [fact.value for fact in facts if fact.label == "Devices"] == ["0–3: 4 × Tesla V100, 16.0 GiB"]


def test_a_part_that_was_switched_off_names_the_option(tmp_path: Path) -> None:
    run = build_run(tmp_path / "run", RunPlan(operators=False))
    off = Signal("window", "off", "Detailed windows were switched off with window=None.")
    edit_rank(run, signals=(off,), windows=())
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
    assert page.steps_card.body is None  # one point is no chart
