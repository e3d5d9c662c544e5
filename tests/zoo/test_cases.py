"""The planted scripts: they give nothing away, and what is planted lies where the case says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from collector import open_run
from profiler_server.facts.results import Suggestion
from tests.zoo.cases import CASES, SCRIPTS, Case, follow

STAGED = [case for case in CASES if case.script in ("leaves", "maps", "letters")]
"""One for each stage: the whole zoo is run by its own command, not by the tests."""


def record(case: Case, folder: Path, steps: int = 20) -> pd.DataFrame:
    """Run a script and return its rows of `stages`."""
    command = [sys.executable, str(case.path), "--output", str(folder), "--steps", str(steps)]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    return open_run(folder).frame("stages")


def test_every_script_has_a_case_and_the_other_way_round() -> None:
    assert {path.stem for path in SCRIPTS.glob("*.py")} - {"loop"} == {case.script for case in CASES}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.script)
def test_a_script_names_no_cause(case: Case) -> None:
    text = case.path.read_text("utf-8").lower()
    words = {word for rule in (case.cause, *case.accept) for word in (rule, rule.replace("_", " ")) if word}
    assert [word for word in sorted(words) if word in text] == []
    assert "slow" not in text


@pytest.mark.slow
@pytest.mark.parametrize("case", STAGED, ids=lambda case: case.script)
def test_the_plant_lies_in_its_stage(case: Case, tmp_path: Path) -> None:
    work = record(case, tmp_path).query("kind == 'work'")
    took = work.groupby("stage", observed=True).duration_ns.sum()
    assert took.idxmax() == case.stage


@pytest.mark.slow
def test_workers_that_are_started_again_show_their_setup(tmp_path: Path) -> None:
    case = next(case for case in CASES if case.cause == "worker_restart")
    stages = record(case, tmp_path, steps=30)
    assert int((stages.kind == "setup").sum()) == 3 * 2


def suggest(rule: str, change: str) -> Suggestion:
    return Suggestion(rule, "", "high", "", "", "", change, 1.0, 1.0, 1.0, ())


def test_a_suggestion_is_followed_with_its_own_numbers() -> None:
    assert follow(suggest("no_workers", "num_workers=3,  # was 0")) == ("--workers", "3")
    uneven = "num_workers=2,\nprefetch_factor=4,  # was 2\nin_order=False,  # was default"
    assert follow(suggest("uneven_samples", uneven)) == ("--prefetch", "4", "--unordered")
    assert follow(suggest("slow_read", "# pack samples")) == ("--ease", "0.5")
    assert follow(suggest("optimizer_loop", "fused=True")) == ("--fixed",)
