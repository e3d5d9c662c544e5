"""Changes are compared with the unchanged runs beside them, and only a gain beyond their scatter counts."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from collector.format.schema.errors import UsageError
from collector.launch.command import run_command
from collector.launch.origin import PLAN_VARIABLE
from collector.launch.script import Program
from collector.launch.trying import RESULTS_FILE, Trying, read_trial, try_changes
from collector.launch.trying.applying import Change
from collector.launch.trying.inside import TRIAL_VARIABLE, Plan
from collector.launch.trying.knobs import Candidate
from collector.launch.trying.lines import list_edits
from collector.launch.trying.process import run_process
from collector.launch.trying.report import describe, list_results
from collector.launch.trying.search import OutOfTime, Search, Trial, TrialFailed, compare_steps
from collector.launch.trying.seen import list_candidates
from profiler_server.diagnosis.knobs import Change as Advised
from tests.support.runs import RunPlan, build_run

MS = 1e6


def _candidate(knob: str, label: str = "", **change: Any) -> Candidate:
    return Candidate(knob, label or knob, change or {knob: 1}, f"{knob}()")


def _trial(step_ns: float, loss: float = 2.0) -> Trial:
    return Trial((step_ns,) * 60, (3.0, loss))


def _search(step: Callable[[Change, int], float], most: int = 1000) -> Search:
    """Return a search in a world where the step of a change at its nth run is known."""
    count = 0

    def measure(change: Change) -> Trial:
        nonlocal count
        count += 1
        if count > most:
            raise OutOfTime
        return _trial(step(change, count), 2.1 if "odd" in change else 2.0)

    return Search(measure, lambda label, found: None)


def _noise(count: int) -> float:
    return 1.0 + 0.01 * math.sin(7.3 * count)


def test_the_change_that_gains_is_found_with_its_interval() -> None:
    search = _search(lambda change, count: 100 * MS * _noise(count) * (0.5 if "good" in change else 1.0))
    search.run([_candidate("good"), _candidate("odd"), _candidate("other")])
    assert search.best is not None
    assert search.best.label == "good"
    low, high = search.bound_gain(search.best)
    assert 0.45 < low < 0.5 < high
    assert [search.has_same_losses(entry) for entry in search.tried[:3]] == [True, False, True]
    assert search.compare_losses(search.tried[1]) == pytest.approx(0.05)


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


@pytest.mark.parametrize("most", range(14))
def test_what_is_known_when_the_time_is_over_stays(most: int) -> None:
    search = _search(lambda change, count: 100 * MS * _noise(count) * (0.5 if "good" in change else 1.0), most)
    search.run([_candidate("good"), _candidate("other")])
    assert (search.best is not None) == (most >= 2)
    assert [len(entry.logs) > 0 for entry in search.tried[:2]] == [most >= 2, most >= 3]
    json.dumps(describe(search))
    assert list_results(search, {}) if most else not search.bases


def test_a_trial_that_fails_is_one_line_and_the_others_go_on() -> None:
    def measure(change: Change) -> Trial:
        if "bad" in change:
            raise TrialFailed("RuntimeError: Adam does not support sparse gradients")
        return _trial(100 * MS * (0.5 if change else 1.0))

    search = Search(measure, lambda label, found: None)
    search.run([_candidate("bad"), _candidate("good")])
    assert search.tried[0].failure == "RuntimeError: Adam does not support sparse gradients"
    assert search.best is not None
    assert search.best.label == "good"


def test_what_is_known_at_ctrl_c_and_beside_a_failed_unchanged_run_stays() -> None:
    count = 0

    def measure(change: Change) -> Trial:
        nonlocal count
        count += 1
        if count == 3:
            raise TrialFailed("CUDA out of memory")
        if count == 5:
            raise KeyboardInterrupt
        return _trial(100 * MS * (0.4 if change else 1.0))

    search = Search(measure, lambda label, found: None)
    with pytest.raises(KeyboardInterrupt):
        search.run([_candidate("good")])
    assert search.best is not None
    assert len(search.best.logs) == 2


def test_what_is_tried_can_be_changed_from_outside_and_what_takes_long_comes_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = [
        Advised("compile", "compile", {"compile": True}, "model.compile()", 0.9, is_slow=True),
        Advised("attention", "attention", {}, "attend(q, k, v)", 0.8),
        Advised("threads", "2 threads", {"threads": 2}, "torch.set_num_threads(2)", 0.3, "threads"),
    ]
    monkeypatch.setattr("collector.server.list_changes", lambda run, rank: changes)
    folder = build_run(tmp_path / "run", RunPlan(steps=2, operators=False))
    found = [(each.label, each.change, each.code, each.place) for each in list_candidates(folder)]
    assert found == [
        ("2 threads", {"threads": 2}, "torch.set_num_threads(2)", "threads"),
        ("compile", {"compile": True}, "model.compile()", ""),
    ]
    with pytest.raises(TrialFailed):
        list_candidates(tmp_path / "none")


def test_a_trial_is_the_times_between_updates() -> None:
    ends = [round(1e9 + 10 * MS * count) for count in range(70)]
    assert read_trial({"ends_ns": ends, "losses": [1.0]}) == Trial((10 * MS,) * 69, (1.0,))


def test_runs_are_compared_over_the_steps_that_both_have() -> None:
    base = Trial((100 * MS,) * 15 + (50 * MS,) * 15)
    assert compare_steps(Trial((50 * MS,) * 15), base) == pytest.approx(math.log(0.5))
    assert compare_steps(Trial((900 * MS, *(50 * MS,) * 14)), base) == pytest.approx(math.log(0.5)), "warming up"


def test_a_long_step_in_both_runs_is_left_out_and_one_of_a_single_run_counts() -> None:
    base = [100 * MS] * 60
    found = [50 * MS] * 60
    base[40] = found[40] = 9000 * MS
    assert compare_steps(Trial(tuple(found)), Trial(tuple(base))) == pytest.approx(math.log(0.5))
    base[40] = 100 * MS
    assert compare_steps(Trial(tuple(found)), Trial(tuple(base))) > 0
    base[10::5] = found[10::5] = [9000 * MS] * 10
    assert compare_steps(Trial(tuple(found)), Trial(tuple(base))) == pytest.approx(0, abs=0.05), "each fifth step"


def test_losses_say_nothing_where_unchanged_runs_differ() -> None:
    losses = iter(range(100))
    search = Search(lambda change: _trial(100 * MS, next(losses)), lambda label, found: None)
    search.run([_candidate("a")])
    assert search.has_same_losses(search.tried[0]) is None
    assert "Losses differ between unchanged runs too." in list_results(search, {})


def test_bounds_stay_finite_where_nothing_repeats_itself() -> None:
    search = _search(lambda change, count: 10.0 ** (count % 7) * MS)
    search.run([_candidate(name) for name in "abc"])
    assert all(-1000 <= bound <= 1 for entry in search.tried for bound in search.bound_gain(entry))


def test_what_takes_long_comes_last() -> None:
    order: list[Change] = []

    def measure(change: Change) -> Trial:
        order.append(change)
        return _trial(100 * MS * (0.5 if "quick" in change else 1.0))

    slow = Candidate("slow", "slow", {"slow": 1}, "slow()", is_slow=True)
    Search(measure, lambda label, found: None).run([slow, _candidate("quick")])
    assert order[-2:] == [{"slow": 1}, {}]
    assert order.count({"quick": 1}) == 3


CALLS = """loader = DataLoader(rows, batch_size=None, num_workers=8,
                    persistent_workers=True, pin_memory=False)
torch.set_num_threads(1)
opt = Adam(net.parameters())
other = DataLoader(rows, **options)
"""


def test_a_change_is_a_diff_of_the_users_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = str(tmp_path / "train.py")
    Path(file).write_text(CALLS)
    places = {"DataLoader": [(file, 1, "DataLoader")], "threads": [(file, 3, "set_num_threads")]}
    left = dict.fromkeys(("persistent_workers", "prefetch_factor", "multiprocessing_context", "timeout"))
    workers = Candidate("num_workers", "", {}, "DataLoader(…, num_workers=0)", "DataLoader", {"num_workers": 0, **left})
    threads = Candidate("threads", "", {}, "torch.set_num_threads(2)", "threads")
    assert list_edits([workers, threads], places) == [
        "  train.py:1",
        "  -loader = DataLoader(rows, batch_size=None, num_workers=8,",
        "  -                    persistent_workers=True, pin_memory=False)",
        "  -torch.set_num_threads(1)",
        "  +loader = DataLoader(rows, batch_size=None, num_workers=0, pin_memory=False)",
        "  +torch.set_num_threads(2)",
    ]
    fused = Candidate("update", "", {}, "", "optimizer", {"fused": True, "foreach": None})
    assert list_edits([fused], {"optimizer": [(file, 4, "Adam")]})[-1] == "  +opt = Adam(net.parameters(), fused=True)"
    unsure = {"DataLoader": [(file, 5, "DataLoader")]}
    assert list_edits([workers], unsure) == ["  DataLoader(…, num_workers=0)"]


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
import json, os, pathlib, shutil, sqlite3, subprocess, sys
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
assert {"kept.txt", "data.txt", "out"} <= set(os.listdir(".")) and "gone.txt" not in os.listdir(".")
shutil.rmtree("old")
assert not os.path.exists("old/one.txt")
sqlite3.connect("data.db").execute("create table t (x int)")
os.chdir("out")
assert open("../data.txt").read() == "data.txt and more" and os.path.basename(os.getcwd()) == "out"
os.chdir("..")
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
    (home / "old").mkdir()
    (home / "old" / "one.txt").write_text("one")
    before = _read_all(home)
    plan = Plan({"threads": 2}, 30, 10, 60.0, str(scratch), str(folder), str(scratch))
    environment = {**os.environ, PLAN_VARIABLE: plan.encode(), TRIAL_VARIABLE: "1", "TMPDIR": str(scratch / "tmp")}
    words = [sys.executable, "-m", "collector.launch", f"--output={folder}", str(tmp_path / "train.py")]
    done = subprocess.run(words, cwd=home, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "threads 2 1" in done.stderr
    by_another = (home / "by-another-program").exists()
    assert {name: text for name, text in _read_all(home).items() if name != "by-another-program"} == before
    result = json.loads((folder / "trial.json").read_text())
    assert (len(result["ends_ns"]), len(result["losses"])) == (30, 30)
    assert result["losses"][0] > result["losses"][-1]
    assert result["is_guarded"] == (not by_another)


def _read_all(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


SPAWNER = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
print(child.pid, flush=True)
sys.argv[1] == "ends" or time.sleep(600)
"""


@pytest.mark.parametrize("how", ["ends", "stays"])
def test_a_trial_ends_with_all_that_it_started(how: str, tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    words = [sys.executable, "-c", SPAWNER, how]
    code = run_process(words, dict(os.environ), log, tmp_path / "result", 60.0 if how == "ends" else 2.0)
    assert code == (0 if how == "ends" else None)
    assert not psutil.pid_exists(int(log.read_text()))
