"""The facts below the cards of the Overall page."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from collector.format.run import open_run
from collector.format.schema import layout
from collector.format.schema.manifest import Device, encode_manifest
from collector.traces import import_trace
from profiler_server.pages.overall.facts import list_facts
from tests.support.cases import Plant, build_case_run
from tests.support.overall_page import show, stat
from tests.support.row_edits import rest_between_epochs
from tests.support.runs import MS, RunPlan, build_run
from tests.support.traces import call, kernel, training_steps, write_trace


def test_a_device_without_a_window_is_not_available_rather_than_zero(tmp_path: Path) -> None:
    run = build_run(tmp_path / "run", RunPlan(operators=False))
    manifest = open_run(run).rank(0).manifest
    manifest = dataclasses.replace(manifest, devices=(Device(0, "NVIDIA H100 80GB HBM3", memory_bytes=80 << 30),))
    layout.rank_file(run, 0).write_text(encode_manifest(manifest), encoding="utf-8")
    page = show(run)
    assert stat(page, "Device busy") == "n/a"
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
    manifest = open_run(path).rank(0).manifest
    window = dataclasses.replace(manifest.windows[0], trigger="outlier")
    entries = [{"trigger": "outlier", "step": 7, "at_ns": 1, "text": "step 7 took 6.1× the median"}, "damaged"]
    changed = dataclasses.replace(manifest, windows=(window,), facts={"triggers": entries})
    layout.rank_file(path, 0).write_text(encode_manifest(changed), encoding="utf-8")
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
    manifest = open_run(path).rank(0).manifest
    later = dataclasses.replace(manifest.windows[0], first_step=30, last_step=31)
    changed = dataclasses.replace(manifest, windows=(*manifest.windows, later))
    layout.rank_file(path, 0).write_text(encode_manifest(changed), encoding="utf-8")
    card = show(path).timeline_card.body
    assert card is not None
    assert card.covered == "steps 10–12, 30–31"


def test_devices_that_are_alike_share_a_line(tmp_path: Path) -> None:
    run = open_run(build_run(tmp_path / "run"))
    devices = tuple(Device(index, "Tesla V100", memory_bytes=(16 << 30) - index) for index in range(4))
    facts = list_facts(run.manifest, dataclasses.replace(run.rank(0).manifest, devices=devices), 1)
    assert [fact.value for fact in facts if fact.label == "Devices"] == ["0–3: 4 × Tesla V100, 16.0 GiB"]
