"""A rule that fails is one line among the warnings, and takes nothing else away."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import profiler_server.diagnosis.rules as room
from collector.format.run import open_run
from profiler_server.diagnosis import judging
from profiler_server.diagnosis.judging import Room, diagnose, find_rules
from profiler_server.report.building import build_report
from profiler_server.report.text import render_text
from tests.support.cases import PLANTED, Plant, build_case_run, plan_of
from tests.support.row_edits import Row
from tests.support.runs import RunPlan, build_run

FAILING = 'from profiler_server.facts.case import Rule\n\ndef _judge(case):\n    return 1 / 0\n\nRULE = Rule("bad", "bad", "code", _judge)\n'


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
    assert diagnosis.warnings[0].startswith("The rule bad_import cannot be imported and is left out: ModuleNotFound")
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
