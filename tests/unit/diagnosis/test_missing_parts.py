"""A run that lacks something, a trace of few steps, a rule that fails: what is there is judged, what is not is said."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import profiler_server.diagnosis.rules as room
from collector.format.run import open_run
from collector.format.schema import layout
from collector.format.schema.errors import RunNotFoundError, TableBrokenError
from collector.format.schema.manifest import encode_manifest
from collector.traces import import_trace
from profiler_server.diagnosis import judging
from profiler_server.diagnosis.judging import Room, diagnose, find_rules
from profiler_server.report.building import build_report
from profiler_server.report.text import render_text
from tests.support.cases import A100, PLANTED, Plant, build_case_run, plan_of
from tests.support.diagnosing import diagnose_plant
from tests.support.row_edits import Row
from tests.support.runs import RunPlan, build_run
from tests.support.traces import training_steps, write_trace


def test_missing_signals_make_rules_abstain_and_say_how_to_get_them(tmp_path: Path) -> None:
    without_stages = Plant(plan_of(depths=(0, 0, 0, 1), data_wait=96.0), edit_stages=lambda rows: rows.clear())
    found = {entry.rule: entry for entry in diagnose_plant(tmp_path / "a", without_stages).abstained}
    assert "data_pipeline=True" in found["too_few_workers"].how
    device = diagnose_plant(tmp_path / "b", Plant(manifest={"devices": (A100,)})).abstained
    assert {entry.rule for entry in device} >= {"launch_bound", "sync_points", "small_copies"}
    assert {entry.how for entry in device} == {'Record with Profiler(window="auto").'}
    update = diagnose_plant(tmp_path / "c", Plant(plan_of(optimizer=40.0))).abstained
    assert [entry.rule for entry in update] == ["optimizer_loop"]


def test_few_steps_get_a_verdict_without_advice(tmp_path: Path) -> None:
    diagnosis = diagnose_plant(tmp_path / "run", Plant(RunPlan(steps=8)))
    assert diagnosis.bound_by.kind == "compute"
    assert diagnosis.bound_by.confidence_frac == pytest.approx((8 / 20) ** 0.5)
    assert "Only 7 steady steps were recorded; advice needs 20." in diagnosis.sentence
    assert [(entry.rule, entry.missing) for entry in diagnosis.abstained] == [
        ("all", "13 more steady steps (20 are needed, the run has 7)")
    ]


def test_a_run_without_steps_says_so(tmp_path: Path) -> None:
    diagnosis = diagnose_plant(tmp_path / "run", Plant(RunPlan(steps=0, operators=False)))
    assert diagnosis.bound_by.kind == "unknown"
    assert diagnosis.sentence.startswith("No steps were recorded")


def test_a_run_without_tables_says_so_without_a_path_of_the_server(tmp_path: Path) -> None:
    run = open_run(build_run(tmp_path / "run", RunPlan()))
    (run.rank(0).folder / "steps.parquet").unlink()
    assert str(tmp_path) not in diagnose(run, 0).sentence


def test_broken_steps_and_missing_ranks_are_errors(tmp_path: Path) -> None:
    run = open_run(build_run(tmp_path / "run", RunPlan()))
    with pytest.raises(RunNotFoundError):
        diagnose(run, 3)
    (run.rank(0).folder / "steps.parquet").write_bytes(b"PAR1 not really")
    with pytest.raises(TableBrokenError):
        diagnose(run, 0)


def test_damaged_tables_beside_the_steps_do_not_stop_the_verdict(tmp_path: Path) -> None:
    run = open_run(build_run(tmp_path / "run", dataclasses.replace(PLANTED["too_few_workers"].plan)))
    for name in ("stages", "queues"):
        (run.rank(0).folder / f"{name}.parquet").write_bytes(b"PAR1 not really")
    diagnosis = diagnose(run, 0)
    assert diagnosis.bound_by.kind == "input"


def short_trace(kind: str, steps: int = 6, **phases_ms: float) -> Plant:
    """Some steps that another profiler recorded, and which iterator of a loader they show."""
    facts = {"data_loader": kind}
    plan = dataclasses.replace(plan_of(2, (3, 4, 4, 3), **phases_ms), steps=steps)
    return Plant(plan, manifest={"state": "imported", "loaders": (), "facts": facts})


def test_a_short_trace_is_told_what_it_shows_without_a_step_time(tmp_path: Path) -> None:
    diagnosis = diagnose_plant(tmp_path / "run", short_trace("single_process", data_wait=96.0))
    (found,) = diagnosis.suggestions
    assert (found.rule, found.severity, found.predicted_step_ns) == ("no_workers", "medium", None)
    assert "with no wait left, a step takes 63.6 ms" in found.advice
    assert "A step time is predicted from 20 steady steps on; the trace has 5." in found.advice
    assert "The training process loads its own data. Only 5 steady steps were recorded" in diagnosis.sentence
    assert [entry.rule for entry in diagnosis.abstained] == ["all"]


def test_a_longer_trace_gets_a_step_time_for_workers(tmp_path: Path) -> None:
    found = diagnose_plant(tmp_path / "run", short_trace("single_process", steps=60, data_wait=96.0)).suggestions[0]
    assert (found.rule, found.severity) == ("no_workers", "medium")
    assert 63e6 < (found.predicted_step_ns or 0) < (found.predicted_high_ns or 0) < 130e6


def test_a_short_trace_of_workers_is_not_told_to_use_workers(tmp_path: Path) -> None:
    assert diagnose_plant(tmp_path / "run", short_trace("workers", data_wait=96.0)).suggestions == ()


def test_a_short_trace_of_a_healthy_loop_gets_no_advice(tmp_path: Path) -> None:
    diagnosis = diagnose_plant(tmp_path / "run", short_trace("single_process"))
    assert diagnosis.suggestions == ()
    assert "Only 5 steady steps were recorded; predicting a gain needs 20." in diagnosis.sentence


def test_communication_of_one_rank_alone_is_not_said_to_be_free_of_waiting(tmp_path: Path) -> None:
    plant = short_trace("workers", communication=120.0)
    run = build_case_run(tmp_path / "run", plant)
    manifest = dataclasses.replace(run.manifest, world_size=8)
    layout.run_file(run.path).write_text(encode_manifest(manifest), encoding="utf-8")
    (found,) = diagnose(open_run(run.path), 0).suggestions
    assert found.rule == "exposed_all_reduce"
    assert "is unknown, because no other rank was recorded here" in found.measured


def test_nothing_found_in_few_steps_is_said_of_a_trace_and_of_a_run_that_it_was_not_judged(tmp_path: Path) -> None:
    trace = import_trace(write_trace(tmp_path / "trace.json", training_steps(3, 20_000.0)), tmp_path / "trace")
    short = open_run(build_run(tmp_path / "short", RunPlan(steps=5)))
    found = [diagnose(open_run(run.path), run.ranks[0]) for run in (trace, short)]
    assert [entry.suggestions for entry in found] == [(), ()]
    assert found[0].silence.startswith("Nothing was found in these few steps")
    assert found[1].silence == "Advice needs 20 steady steps; this run has 4."
    assert ["torch.profiler.schedule" in entry.abstained[0].how for entry in found] == [True, False]


FAILING = 'from profiler_server.facts.case import Rule\n\ndef _judge(case):\n    return 1 / 0\n\nRULES = (Rule("bad", "bad", "code", _judge),)\n'


@pytest.fixture
def other_rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder whose modules are rules, too."""
    folder = tmp_path / "more_rules"
    folder.mkdir()
    monkeypatch.setattr(room, "__path__", [*room.__path__, str(folder)])
    find_rules.cache_clear()
    yield folder
    find_rules.cache_clear()
    for name in [name for name in sys.modules if name.startswith(f"{room.__name__}.bad")]:
        del sys.modules[name]


def test_a_rule_that_raises_is_one_line_and_the_others_speak(other_rules: Path, tmp_path: Path) -> None:
    (other_rules / "bad_rule.py").write_text(FAILING, encoding="utf-8")
    run = build_case_run(tmp_path / "run", PLANTED["too_few_workers"])
    diagnosis = diagnose(run, 0)
    assert diagnosis.warnings == ("The rule bad failed and is left out: ZeroDivisionError: division by zero",)
    assert diagnosis.suggestions[0].rule == "too_few_workers"
    report = build_report(run)
    assert any("The rule bad failed" in line for line in report["warnings"])
    assert "Traceback" not in render_text(report, run)


def test_a_rule_that_cannot_be_imported_is_one_line(other_rules: Path, tmp_path: Path) -> None:
    (other_rules / "bad_import.py").write_text("import a_module_that_nobody_has\n", encoding="utf-8")
    diagnosis = diagnose(build_case_run(tmp_path / "run", PLANTED["too_few_workers"]), 0)
    assert len(diagnosis.warnings) == 1
    assert diagnosis.warnings[0].startswith(
        "The rules in bad_import cannot be imported and are left out: ModuleNotFound"
    )
    assert diagnosis.suggestions[0].rule == "too_few_workers"


def test_a_change_that_cannot_be_simulated_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ValueError("no such model")

    monkeypatch.setattr(judging, "make_claim", fail)
    diagnosis = diagnose(build_case_run(tmp_path / "run", PLANTED["too_few_workers"]), 0)
    assert {line.split(": ", 1)[1] for line in diagnosis.warnings} == {"ValueError: no such model"}


def test_steps_without_length_are_no_steps(tmp_path: Path) -> None:
    def shorten(steps: list[Row]) -> None:
        for step in steps:
            step |= {name: 0 for name in step if name.endswith("_ns") and name != "start_ns"}

    diagnosis = diagnose(build_case_run(tmp_path / "run", Plant(plan_of(), edit=shorten)), 0)
    assert diagnosis.bound_by.kind == "unknown"
    assert diagnosis.warnings == ()


def test_all_rules_of_the_room_can_be_imported() -> None:
    found = find_rules()
    assert isinstance(found, Room)
    assert found.failures == ()
    assert len({rule.id for rule in found.rules}) == len(found.rules)


def test_a_healthy_run_has_no_warning(tmp_path: Path) -> None:
    assert diagnose(open_run(build_run(tmp_path / "run", RunPlan())), 0).warnings == ()
