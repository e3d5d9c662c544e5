"""Changes are compared with the unchanged runs beside them, and only a gain beyond their scatter counts."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from collector.format.schema.errors import UsageError
from collector.launch.command import run_command
from collector.launch.origin import PLAN_VARIABLE
from collector.launch.script import Program
from collector.launch.trying import RESULTS_FILE, Trying, describe, read_trial, try_changes
from collector.launch.trying.applying import KNOBS, Change, apply_change
from collector.launch.trying.inside import TRIAL_VARIABLE, Plan
from collector.launch.trying.knobs import Candidate, Seen, list_candidates
from collector.launch.trying.search import OutOfTime, Search, Trial, TrialFailed

MS = 1e6


def _candidate(knob: str, label: str = "", **change: Any) -> Candidate:
    return Candidate(knob, label or knob, change or {knob: 1}, f"{knob}()")


def _search(step: Callable[[Change, int], float], most: int = 1000) -> Search:
    """Return a search in a world where the step of a change at its nth run is known."""
    count = 0

    def measure(change: Change) -> Trial:
        nonlocal count
        count += 1
        if count > most:
            raise OutOfTime
        return Trial(step(change, count), (3.0, 2.0) if "odd" not in change else (3.0, 2.1))

    return Search(measure, lambda label, found: None)


def _noise(count: int) -> float:
    return 1.0 + 0.01 * math.sin(7.3 * count)


def test_the_change_that_gains_is_found_with_its_interval() -> None:
    search = _search(lambda change, count: 100 * MS * _noise(count) * (0.5 if "good" in change else 1.0))
    search.run([_candidate("good"), _candidate("odd"), _candidate("other")])
    assert search.best is not None
    assert search.best.label == "good"
    low, high = search.best.bound_gain(search.scatter)
    assert low < 0.5 < high
    assert low > 0.4
    assert [entry.is_same_bits for entry in search.tried[:3]] == [True, False, True]
    assert search.tried[1].loss_frac == pytest.approx(0.05)


def test_noise_alone_gains_nothing() -> None:
    search = _search(lambda change, count: 100 * MS * _noise(count))
    search.run([_candidate(name) for name in "abcdefgh"])
    assert search.best is None


def test_changes_of_different_knobs_are_combined_and_of_one_knob_not() -> None:
    saved = {"a": 0.7, "b": 0.8, "c": 0.75}
    search = _search(lambda change, count: 100 * MS * _noise(count) * math.prod(saved[name] for name in change))
    search.run([_candidate("one", "a", a=1), _candidate("two", "b", b=1), _candidate("one", "c", c=1)])
    assert search.best is not None
    assert search.best.label == "a + b"
    assert search.best.gain_frac == pytest.approx(0.44, abs=0.03)


def test_two_changes_that_gain_the_same_time_are_not_combined() -> None:
    search = _search(lambda change, count: 100 * MS * _noise(count) * (0.7 if change else 1.0))
    search.run([_candidate("a"), _candidate("b")])
    assert search.best is not None
    assert len(search.best.candidates) == 1


def test_a_drift_of_the_machine_is_no_gain() -> None:
    search = _search(lambda change, count: 100 * MS * (1.0 - 0.02 * count))
    search.run([_candidate(name) for name in "abc"])
    assert search.best is None


@pytest.mark.parametrize("most", range(1, 14))
def test_what_is_known_when_the_time_is_over_stays(most: int) -> None:
    search = _search(lambda change, count: 100 * MS * _noise(count) * (0.5 if "good" in change else 1.0), most)
    search.run([_candidate("good"), _candidate("other")])
    assert (search.best is not None) == (most >= 2)
    assert [len(entry.logs) > 0 for entry in search.tried] == [most >= 2, most >= 3][: len(search.tried)]
    json.dumps(describe(search))


def test_a_trial_that_fails_is_one_line_and_the_others_go_on() -> None:
    def measure(change: Change) -> Trial:
        if "bad" in change:
            raise TrialFailed("RuntimeError: Adam does not support sparse gradients")
        return Trial(100 * MS * (0.5 if change else 1.0))

    search = Search(measure, lambda label, found: None)
    search.run([_candidate("bad"), _candidate("good")])
    assert search.tried[0].failure == "RuntimeError: Adam does not support sparse gradients"
    assert search.best is not None
    assert search.best.label == "good"


def _labels(**seen: Any) -> list[str]:
    return [candidate.label for candidate in list_candidates(Seen(cores=4, **seen))]


def test_knobs_that_the_figures_leave_hopeless_are_not_tried() -> None:
    assert _labels() == []
    assert _labels(workers=0, waits_frac=0.02) == []
    assert _labels(workers=0, waits_frac=0.4) == [
        f"num_workers={count}, persistent_workers=True" for count in (4, 2, 1)
    ]
    fewer = _labels(workers=8, waits_frac=0.0)
    assert fewer == ["num_workers=4", "num_workers=2", "num_workers=1", "num_workers=0"]
    assert _labels(compute_frac=0.9, threads=1) == ["4 threads", "2 threads", "torch.compile"]
    assert _labels(update_frac=0.2, optimizers=({"name": "Adam", "foreach": True},)) == ["fused=True"]
    assert _labels(operators=frozenset(["aten::conv2d"])) == ["channels_last"]
    assert _labels(facts={"anomaly_mode": True}) == ["anomaly detection off"]


def test_the_number_of_workers_that_the_advice_names_comes_first() -> None:
    first = _labels(workers=0, waits_frac=0.4, asked={"num_workers": 2})[0]
    assert first == "num_workers=2, persistent_workers=True"


def test_every_candidate_is_a_change_that_can_be_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", ModuleType("torch"))
    seen = Seen(
        cores=4,
        threads=2,
        workers=2,
        waits_frac=0.5,
        update_frac=0.5,
        compute_frac=0.5,
        operators=frozenset(["aten::conv2d", "aten::embedding"]),
        optimizers=({"name": "Adam"},),
        facts={"anomaly_mode": True, "unused_gradients": {}, "ddp": {"x": 1}, "matmul_precision": "highest"},
        uses_device=True,
        ranks=2,
    )
    seen_on_host = Seen(cores=4, threads=2, compute_frac=0.5)
    names = {name for each in (seen, seen_on_host) for one in list_candidates(each) for name in one.change}
    assert {name for name in names if not name.startswith("loader.")} <= KNOBS.keys()
    with pytest.raises(ValueError, match="no knob"):
        apply_change({"nonsense": 1})


def test_few_updates_are_no_trial() -> None:
    ends = [round(1e9 + 10 * MS * count) for count in range(70)]
    assert read_trial({"ends_ns": ends, "losses": [1.0]}) == Trial(10 * MS, (1.0,))
    with pytest.raises(TrialFailed, match="too few"):
        read_trial({"ends_ns": ends[:4], "losses": []})


@pytest.mark.parametrize("words", [["--budget", "5m", "t.py"], ["--try", "--budget", "soon", "t.py"], ["--try"]])
def test_a_wrong_command_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run_command(words)
    assert "profiler-run: error" in capsys.readouterr().err


def test_a_folder_with_earlier_trials_is_refused(tmp_path: Path) -> None:
    (tmp_path / RESULTS_FILE).write_text("{}")
    with pytest.raises(UsageError, match="earlier trials"):
        try_changes(Trying(Program("t.py", False, ()), 60.0, str(tmp_path)))


SCRIPT = """
import json, os, pathlib, shutil, subprocess, sys
import numpy as np
import torch

torch.set_num_threads(1)
os.makedirs("out/deep", exist_ok=True)
with open("out/log.txt", "a") as file:
    file.write("first\\n")
with open("data.txt", "a") as file:
    file.write(" and more")
assert open("data.txt").read() == "data.txt and more"
pathlib.Path("kept.txt").write_text("changed")
assert open("kept.txt").read() == "changed", "the script reads what it wrote"
os.remove("gone.txt")
shutil.copy("data.txt", "out/copy.txt")
np.save("out/array.npy", np.zeros(3))
net = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
torch.save(net.state_dict(), "out/deep/net.pt")
torch.load("out/deep/net.pt")
assert os.path.exists("out/deep/net.pt")
os.rename("out/log.txt", "out/log.old")
print(subprocess.run(["touch", "by-another-program"]).returncode, file=sys.stderr)
print("threads", torch.get_num_threads(), os.environ["STEPSCOPE_TRIAL"], file=sys.stderr)
for step in range(1000):
    net(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def test_a_trial_leaves_nothing_behind_and_ends_after_its_steps(tmp_path: Path) -> None:
    home, scratch, folder = (tmp_path / name for name in ("home", "scratch", "folder"))
    for path in (home, scratch, folder, scratch / "tmp"):
        path.mkdir()
    for name in ("kept.txt", "gone.txt", "data.txt"):
        (home / name).write_text(name)
    (tmp_path / "train.py").write_text(SCRIPT)
    plan = Plan({"threads": 2}, 30, 10, 60.0, str(scratch), str(folder))
    environment = {**os.environ, PLAN_VARIABLE: plan.encode(), TRIAL_VARIABLE: "1", "TMPDIR": str(scratch / "tmp")}
    words = [sys.executable, "-m", "collector.launch", f"--output={folder}", str(tmp_path / "train.py")]
    done = subprocess.run(words, cwd=home, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "threads 2 1" in done.stderr
    assert {path.name: path.read_text() for path in home.iterdir() if path.name != "by-another-program"} == {
        name: name for name in ("kept.txt", "gone.txt", "data.txt")
    }
    result = json.loads((folder / "trial.json").read_text())
    assert (len(result["ends_ns"]), len(result["losses"])) == (30, 30)
    assert result["losses"][0] > result["losses"][-1]
    assert result["is_guarded"] == (not (home / "by-another-program").exists())
