"""A suggestion whose change was tried on the script has the measured gain beside the predicted one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from collector.format.run import Run, open_run
from collector.launch import trying
from profiler_server.diagnosis import tried
from profiler_server.diagnosis.judging import diagnose
from profiler_server.diagnosis.tried import Trial, find_trials
from profiler_server.report import build_report
from profiler_server.report.text import render_text
from profiler_server.store.redaction import redact
from tests.support.asking import Asker, read_words
from tests.support.cases import PLANTED, build_case_run
from tests.support.live import edit_run
from tests.support.runs import RunPlan, build_run

SAID = "Tried on this script: the step is 58.0 % shorter (55.0 % to 60.0 %, 3 runs)."


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return build_case_run(tmp_path / "fit", PLANTED["too_few_workers"])


def write_trials(folder: Path, *tried: dict[str, Any], created: int = 1, script: str = "train.py") -> None:
    run = build_run(folder / "as-it-is", RunPlan(steps=2, operators=False))
    edit_run(run, created_unix_ns=created, script=script)
    (folder / "tried.json").write_text(json.dumps({"format": "stepscope-tried", "version": 1, "tried": tried}))


def entry(change: dict[str, Any], gain: float | None = 0.58, low: float | None = 0.55, high: float | None = 0.6) -> Any:
    return {"change": change, "changes": ["x"], "runs": 3, "gain_frac": gain, "low_frac": low, "high_frac": high}


def name_script(run: Run) -> str:
    return run.manifest.script


def test_the_files_have_the_names_that_a_trial_gives_them() -> None:
    assert (trying.RESULTS_FILE, trying.FIRST_FOLDER) == (tried.RESULTS_FILE, tried.FIRST_FOLDER)


@pytest.mark.parametrize("place", ["tried-1", "fit/tried-1"])
def test_the_gain_of_a_trial_stands_beside_the_prediction(run: Run, tmp_path: Path, place: str) -> None:
    workers = diagnose(run, 0).suggestions[0].settings["num_workers"]
    write_trials(
        tmp_path / place, entry({"loader.num_workers": workers}), entry({"threads": 1}), script=name_script(run)
    )
    report = build_report(run)
    assert report["tried"] == {
        "too_few_workers": {"sentence": SAID, "gain_frac": 0.58, "low_frac": 0.55, "high_frac": 0.6, "runs": 3}
    }
    assert f"\n     {SAID}\n" in render_text(report, run)
    assert SAID in read_words(Asker(tmp_path).ask("/runs/fit/").text)
    assert find_trials(redact(run), diagnose(run, 0).suggestions) == {}


def test_the_latest_trial_counts_and_what_is_odd_is_passed_over(run: Run, tmp_path: Path) -> None:
    suggestions = diagnose(run, 0).suggestions
    change = {"loader.num_workers": suggestions[0].settings["num_workers"]}
    script = name_script(run)
    write_trials(tmp_path / "a", entry(change, 0.1, 0.05, 0.2), created=2, script=script)
    write_trials(tmp_path / "b", entry(change), created=1, script=script)
    write_trials(tmp_path / "other", entry(change), created=9, script="other.py")
    write_trials(tmp_path / "failed", entry(change, None, None, None), created=10, script=script)
    write_trials(tmp_path / "damaged", created=11, script=script)
    (tmp_path / "damaged/tried.json").write_text('{"tried": [{"change": 3}]}')
    assert find_trials(run, suggestions)["too_few_workers"] == Trial(0.1, 0.05, 0.2, 3)
    assert find_trials(open_run(tmp_path / "other/as-it-is"), suggestions) == {}


@pytest.mark.parametrize(
    ("trial", "sentence"),
    [
        (Trial(0.58, 0.55, 0.6, 3), SAID),
        (Trial(-0.2, -0.3, -0.1, 1), "Tried on this script: the step is 20.0 % longer (10.0 % to 30.0 %, 1 run)."),
        (Trial(0.01, -0.02, 0.03, 2), "Tried on this script: no sure gain (-2.0 % to 3.0 %, 2 runs)."),
    ],
)
def test_a_trial_in_words(trial: Trial, sentence: str) -> None:
    assert trial.sentence == sentence
