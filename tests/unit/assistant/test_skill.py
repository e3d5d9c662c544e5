"""The skill for assistants: it lies in the package, its commands run as they stand, and the keys that it names are there."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

import stepscope
from tests.support.cases import PLANTED, build_case_run
from tests.support.runs import RunPlan, build_run
from tests.support.stacks import in_phase, own, write_stacks
from tests.support.traces import build_trace, training_steps
from tests.web.test_command_line import run

SKILL = Path(stepscope.__file__).parent / "skills/stepscope/SKILL.md"
TEXT = SKILL.read_text("utf-8")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    build_case_run(tmp_path / "RUN", PLANTED["too_few_workers"])
    write_stacks(tmp_path / "RUN", [in_phase("forward", 300, own("train", 20), own("Model.forward", 31))])
    for name in ("BEFORE", "BEFORE2", "BEFORE3", "AFTER", "AFTER2", "AFTER3"):
        build_run(tmp_path / name, RunPlan())
    (tmp_path / "TRACE.json").write_text(json.dumps(build_trace(training_steps())))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def read_commands() -> list[list[str]]:
    blocks = "".join(re.findall(r"^```sh\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL))
    return [shlex.split(line)[1:] for line in blocks.splitlines() if not line.startswith("stepscope run ")]


def test_its_head_is_what_assistants_look_for() -> None:
    head = re.match(r"---\nname: stepscope\ndescription: (?P<about>.+)\n---\n", TEXT)
    assert head is not None
    assert len(head["about"]) <= 1024
    assert SKILL.parent.name == "stepscope"


def test_its_commands_run_as_they_stand(folder: Path) -> None:
    commands = read_commands()
    assert len(commands) == 7
    for words in commands:
        done = run(*words)
        assert done.returncode == 0, (words, done.stderr)
        assert done.stdout
        if "--json" in words:
            json.loads(done.stdout)


def test_the_keys_that_it_names_are_in_the_report(folder: Path) -> None:
    report = json.loads(run("report", "RUN", "--json").stdout)
    rows = re.findall(r"^\| [^|]+ \| (.+) \|$", TEXT, re.MULTILINE)[1:]
    named = [key for row in rows for key in re.findall(r"`([\w.\[\]]+)`", row)]
    places: list[dict[str, Any]] = [report, report["suggestions"][0], {"info": None}]
    assert len(named) > 20
    for key in named:
        if key.startswith("ranks[0]."):
            assert key.removeprefix("ranks[0].") in report["ranks"][0], key
        else:
            assert any(key in place for place in places), key
