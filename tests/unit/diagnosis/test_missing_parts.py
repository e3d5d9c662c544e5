"""A run that lacks something, a trace of few steps, a rule that fails: what is there is judged, what is not is said."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import profiler_server.diagnosis.rules as room
from collector.estimating.model import Job, LoopModel
from collector.estimating.simulation import simulate
from collector.format.run import open_run
from collector.format.schema import layout
from collector.format.schema.errors import RunNotFoundError, TableBrokenError
from collector.traces.importing import import_trace
from profiler_server.analysis.data.prediction import predict_step
from profiler_server.diagnosis import judging
from profiler_server.diagnosis.judging import diagnose, find_rules
from profiler_server.report.building import build_report
from profiler_server.report.text import render_text
from tests.support.cases import HEALTHY, PLANTED, Plant, build_case_run, plan_of
from tests.support.diagnosing import measure
from tests.support.live import edit_run
from tests.support.row_edits import cpu_cores
from tests.support.runs import MS, RunPlan, build_run, slow_loader_plan
from tests.support.traces import training_steps, write_trace


def test_a_run_whose_steps_or_rank_are_not_there_says_so(tmp_path: Path) -> None:
    run = open_run(build_run(tmp_path / "run", RunPlan()))
    (run.rank(0).folder / "steps.parquet").unlink()
    assert str(tmp_path) not in diagnose(run, 0).sentence
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


def test_the_load_is_told_beside_another_rank_whose_manifest_is_damaged(tmp_path: Path) -> None:
    plan, tables = plan_of(communication=2.0), {"resources": cpu_cores(process=1.0, system=3.5)}
    manifest = {"usable_cores": 4.0, "cpu_count": 4}
    run = build_case_run(tmp_path / "run", Plant(dataclasses.replace(plan, ranks=2), manifest=manifest, tables=tables))
    layout.rank_file(run.path, 1).write_text("{", encoding="utf-8")
    assert "noisy_host" in {found.rule for found in diagnose(open_run(run.path), 0).suggestions}


def short_trace(kind: str, steps: int = 6, **phases_ms: float) -> Plant:
    """Some steps that another profiler recorded, and which iterator of a loader they show."""
    facts = {"data_loader": kind}
    plan = dataclasses.replace(plan_of(2, (3, 4, 4, 3), **phases_ms), steps=steps)
    return Plant(plan, manifest={"state": "imported", "loaders": (), "facts": facts})


def test_a_trace_with_the_lengths_of_steps_alone_is_bound_by_something_unknown(tmp_path: Path) -> None:
    plan = RunPlan(steps=40, phases_ms={"forward": 20.0}, operators=False)
    found = diagnose(build_case_run(tmp_path / "run", Plant(plan, manifest={"state": "imported", "loaders": ()})), 0)
    assert found.bound_by.kind == "unknown"
    assert found.sentence.startswith(
        "What bounds the step is unknown: the trace has its length, 20.0 ms, but not its parts."
    )
    recorded = diagnose(build_case_run(tmp_path / "recorded", Plant(plan, manifest={"loaders": ()})), 0)
    assert recorded.bound_by.kind == "compute"


def test_communication_of_one_rank_alone_is_not_said_to_be_free_of_waiting(tmp_path: Path) -> None:
    plant = short_trace("workers", communication=120.0)
    run = build_case_run(tmp_path / "run", plant)
    edit_run(run.path, world_size=8)
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


def test_the_model_reproduces_the_run_it_was_measured_from(tmp_path: Path) -> None:
    for name in ("too_few_workers", "uneven_samples", "no_workers"):
        run = build_case_run(tmp_path / name, PLANTED[name])
        case = measure(run)
        assert case.loading.loop.check == pytest.approx(1.0, abs=0.1), name


def test_predictions_leave_amortised_events_in_place(tmp_path: Path) -> None:
    run = build_case_run(tmp_path / "run", PLANTED["worker_restart"])
    case = measure(run)
    assert predict_step(case.loading.loop, case.loading.loop.model) == pytest.approx(case.steps.mean_ns, rel=1e-6)
    assert case.loading.loop.model.extra_ns > 30 * MS


def test_a_diagnosis_is_kept_until_a_file_changes(tmp_path: Path) -> None:
    run = build_case_run(tmp_path / "run", HEALTHY["compute"])
    first = diagnose(run, 0)
    assert diagnose(run, 0) is first
    steps = next(run.rank(0).folder.glob("steps.parquet"))
    os.utime(steps, ns=(1, 1))
    assert diagnose(run, 0) is not first


def test_simulated_gain_of_a_stage_is_that_of_its_share() -> None:
    base = LoopModel(batches=(Job(300.0, 0.0),), steps=(Job(60.0, 0.0),), workers=2, cores=100.0)
    half = dataclasses.replace(base, batches=(Job(150.0, 0.0),))
    assert simulate(base).step_ns == pytest.approx(2 * simulate(half).step_ns, rel=0.02)


@pytest.mark.parametrize(("steps", "advised"), [(15, False), (40, True)])
def test_a_run_is_advised_while_it_records_from_twenty_steady_steps_on(
    steps: int, advised: bool, tmp_path: Path
) -> None:
    plan = dataclasses.replace(slow_loader_plan("read"), steps=steps, state="recording", operators=False)
    run = open_run(build_run(tmp_path / "run", plan))
    assert run.state == "recording"
    found = diagnose(run, 0)
    assert bool([entry for entry in found.suggestions if entry.predicted_step_ns is not None]) == advised
    assert advised or "Only" in found.sentence
