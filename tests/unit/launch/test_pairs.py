"""Pairs of two versions: where the base's code comes from, and what is left when it goes wrong."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from itertools import product
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

from collector.format.schema.errors import UsageError
from collector.format.schema.removal import make_scratch
from collector.launch.origin import VARIABLE
from collector.launch.pairs import draw_order, worktree
from collector.launch.pairs.checkout import (
    Checkout,
    find_script,
    open_base,
    place_environment,
    place_words,
    read_borrowed,
)
from collector.launch.script import MODULE_FOLDER_VARIABLE, Program
from tests.support.waiting import wait_for
from tests.unit.launch.programs import LOOP, ROOT, TIMEOUT_S, run_launcher, write_script

QUIET = {"PROFILER_OPTIONS": '{"window": null}', "PYTHONDONTWRITEBYTECODE": "1"}
SLEEPER = """
import os, pathlib, time
pathlib.Path("starting").write_text(str(os.getpid()))
os.replace("starting", "started")
time.sleep(600)
"""
HOLDER = """
import sys, time
from pathlib import Path
from collector.launch.pairs.checkout import open_base
with open_base("HEAD", Path(sys.argv[1])) as base:
    print(base.code, flush=True)
    time.sleep(600)
"""


def git(folder: Path, *words: str) -> str:
    settings = ("-c", "user.name=x", "-c", "user.email=x@example.com", "-c", "commit.gpgsign=false")
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}  # or a question would refresh the index itself
    done = subprocess.run(
        ["git", *settings, *words], cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository whose script takes its number of steps from a module beside it; the working tree asks for more."""
    root = tmp_path / "project"
    (root / "src").mkdir(parents=True)
    write_script(root / "src", "BATCHES = 20\n", "sizes.py")
    write_script(root / "src", LOOP.replace("torch.randn(24, 16)", "torch.randn(8 * BATCHES, 16)"), "train.py")
    script = root / "src/train.py"
    script.write_text("from sizes import BATCHES\nopen('data.txt').read()\n" + script.read_text(encoding="utf-8"))
    git(root, "init", "-q", "-b", "main")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "first")
    write_script(root / "src", "BATCHES = 25\n", "sizes.py")
    (root / "data.txt").write_text("not in git")
    return root


def look_at(root: Path) -> tuple[str, str, str, bytes]:
    """What pairs must leave as it is: worktrees, status, stashes, the index."""
    state = git(root, "worktree", "list"), git(root, "status", "--porcelain"), git(root, "stash", "list")
    return (*state, (root / ".git/index").read_bytes())


def test_the_base_runs_its_own_code_with_the_data_of_the_current_folder(checkout: Path, tmp_path: Path) -> None:
    before = look_at(checkout)
    words = ("--pairs", "1", "--against", "main", "-o", tmp_path / "out", "--junit", tmp_path / "gate.xml")
    done = run_launcher(checkout, *words, "src/train.py", **QUIET)
    assert re.search(r"run [12] of 2, base-1: 20 steps, median", done.stderr), done.stderr
    assert re.search(r"run [12] of 2, new-1: 25 steps, median", done.stderr)
    assert "base is main (" in done.stderr
    assert "fewer than 3 pairs get no verdict: the exit code will be 2" in done.stderr
    assert "new is the working tree (" in done.stderr
    assert "not beside the base's code: data.txt" in done.stderr
    assert "Gate undecided (one pair of runs). Within this pair the median step differs by" in done.stdout
    assert done.returncode == 2
    assert "<error" in (tmp_path / "gate.xml").read_text(encoding="utf-8")
    assert look_at(checkout) == before
    again = run_launcher(checkout, *words, "src/train.py")
    assert (again.returncode, "holds runs of an earlier comparison" in again.stderr) == (2, True)


def test_which_side_comes_first_in_a_pair_is_drawn_by_lot_and_never_the_same_in_all() -> None:
    drawn = [draw_order(3) for _ in range(400)]
    assert {tuple(order) for order in drawn} == set(product((True, False), repeat=3)) - {(True,) * 3, (False,) * 3}
    assert {draw_order(1)[0] for _ in range(100)} == {True, False}


def test_a_script_that_fails_on_one_side_leaves_nothing_and_says_why(checkout: Path, tmp_path: Path) -> None:
    write_script(checkout / "src", "print('the planned failure')\nraise SystemExit(3)\n", "train.py")
    git(checkout, "commit", "-q", "-a", "-m", "broken")
    before = look_at(checkout)
    junit = tmp_path / "gate.xml"
    junit.write_text("that of an earlier build")
    done = run_launcher(checkout, "--against", "HEAD", "--junit", junit, "src/train.py")
    assert done.returncode == 2
    error = ElementTree.parse(junit).getroot().findtext("testcase/error") or ""
    assert error.startswith("Cannot tell: the script failed as ")
    assert "the planned failure" in error
    assert re.search(r"cannot tell: the script failed as (base|new) \(exit code 3\)", done.stderr)
    assert "the planned failure" in done.stderr
    assert "no file that git tracks differs from HEAD" in done.stderr
    assert look_at(checkout) == before
    assert not (checkout / "profiler_output").exists()


def test_pairs_that_are_ended_end_the_script_and_leave_nothing(checkout: Path) -> None:
    write_script(checkout / "src", SLEEPER, "train.py")
    git(checkout, "commit", "-q", "-a", "-m", "sleeps")
    before = look_at(checkout)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(checkout.parent)}
    command = [sys.executable, "-m", "collector.launch", "--against", "HEAD", "src/train.py"]
    process = subprocess.Popen(command, cwd=checkout, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + TIMEOUT_S
        while not (checkout / "started").exists() and time.monotonic() < deadline and process.poll() is None:
            time.sleep(0.05)
        process.terminate()
        process.communicate(timeout=TIMEOUT_S)
    finally:
        process.kill()
    assert process.returncode == 128 + signal.SIGTERM
    with pytest.raises(ProcessLookupError):
        os.kill(int((checkout / "started").read_text()), 0)
    (checkout / "started").unlink()
    assert look_at(checkout) == before
    assert list(checkout.parent.glob("stepscope-*")) == []


def test_the_base_is_removed_even_where_its_user_is_killed(checkout: Path) -> None:
    before = look_at(checkout)
    command = [sys.executable, "-c", HOLDER, str(checkout / "src/train.py")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        place = Path(process.stdout.readline().strip())
        assert (place / "src/sizes.py").read_text(encoding="utf-8") == "BATCHES = 20\n"
        process.kill()
    wait_for(lambda: not place.parent.exists())
    assert look_at(checkout) == before


def test_the_base_is_removed_without_a_word_where_warnings_are_errors(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PYTHONWARNINGS", "error")
    with open_base("main", checkout / "src/train.py") as base:
        assert base.code.is_dir()
    assert not base.code.exists()
    assert len(git(checkout, "worktree", "list").splitlines()) == 1
    assert capfd.readouterr().err == ""


def test_the_files_of_the_base_go_even_where_git_cannot_be_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(root: Path, place: Path) -> None:
        raise FileNotFoundError(2, "No such file or directory", "git")

    monkeypatch.setattr(worktree, "remove_worktree", refuse)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    scratch = make_scratch(tmp_path)
    assert worktree.main(str(tmp_path), str(scratch.path / "base"), scratch.made.encode()) == 0
    assert not scratch.path.exists()


def test_a_hook_that_calls_us_keeps_its_index(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Git names the index to a hook by a variable; a worktree that took it would fill it with the base's files."""
    before = look_at(checkout)
    monkeypatch.setenv("GIT_INDEX_FILE", str(checkout / ".git/index"))
    with open_base("main", checkout / "src/train.py") as base:
        assert base.place(checkout / "src/train.py").is_file()
    monkeypatch.delenv("GIT_INDEX_FILE")
    assert look_at(checkout) == before


def test_a_second_checkout_is_taken_as_it_is(checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other, program = tmp_path / "other", Program("src/train.py", False, ("--lr", "1"))
    git(checkout, "worktree", "add", "--detach", str(other), "main")
    monkeypatch.chdir(checkout)
    script = find_script(program)
    with open_base("../other", script.path) as base:
        assert (base.code, base.commit, base.list_notes()) == (other, "", [])
        assert place_words(program, script, base) == [str(other / "src/train.py"), "--lr", "1"]
    assert (other / "src/train.py").is_file()


def test_a_base_that_cannot_be_is_refused(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = git(checkout, "hash-object", "-t", "tree", "-w", os.devnull).strip()
    git(checkout, "tag", "empty", git(checkout, "commit-tree", tree, "-m", "nothing").strip())
    monkeypatch.chdir(checkout)
    before = look_at(checkout)
    refusals = dict.fromkeys(("nowhere", "--all"), "git knows no such revision")
    refusals |= {".": "is the checkout itself", "": "is the checkout itself", "empty": "has no src/train.py"}
    for against, words in refusals.items():
        with pytest.raises(UsageError, match=words), open_base(against, checkout / "src/train.py"):
            pass
    assert look_at(checkout) == before


def test_what_python_finds_in_the_checkout_it_finds_in_the_base(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(checkout)
    path = os.pathsep.join(("src", str(tmp_path)))
    finder = ModuleType("__editable___project_finder")
    vars(finder)["MAPPING"] = {"sizes": str(checkout / "src/sizes.py"), "other": "/elsewhere/other"}
    with open_base("main", checkout) as base:
        script = find_script(Program("train", True, ()))
        code, nothing = base.code, place_environment({}, script, base)
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, finder.__name__, finder)
            by_finder = place_environment({}, script, base)
        monkeypatch.setattr(sys, "path", ["", str(checkout / "src"), *sys.path])
        plain, found = (place_environment(given, script, base) for given in ({}, {"PYTHONPATH": path}))
    assert found["PYTHONPATH"] == os.pathsep.join((str(code / "src"), str(tmp_path)))
    assert by_finder["PYTHONPATH"] == plain["PYTHONPATH"] == str(code / "src")
    assert ("PYTHONPATH" in nothing, found[MODULE_FOLDER_VARIABLE]) == (False, str(code))


def test_code_that_the_base_takes_from_the_checkout_is_named(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    write_script(tmp_path / "mine", "", "shared.py")
    (tmp_path / "theirs").mkdir()
    script = write_script(
        tmp_path / "theirs", f"import sys\nsys.path.append({str(tmp_path / 'mine')!r})\nimport shared\n"
    )
    note = {"from": str(tmp_path / "mine"), "to": str(tmp_path / "theirs"), "note": str(tmp_path / "note")}
    environment = {VARIABLE: json.dumps(note)}
    assert run_launcher(tmp_path, "-o", "out", script, **environment).returncode == 0
    assert read_borrowed(environment) == f"shared ({tmp_path / 'mine/shared.py'})"
    assert read_borrowed({}) == ""


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--pairs", "2", "train.py"), "--pairs needs --against"),
        (("--against", "main"), "name a script"),
        (("--against", "main", "-w", "1", "train.py"), "not a benchmark"),
        (("--against", "main", "--max-slowdown", "much", "train.py"), "is no share"),
        (("--against", "main", "--junit", "none/x.xml", "train.py"), "its folder does not exist"),
        (("--against", "main", "none.py"), "none.py cannot be read"),
    ],
)
def test_options_that_cannot_work_are_refused_before_anything_runs(
    tmp_path: Path, words: tuple[str, ...], problem: str
) -> None:
    done = run_launcher(tmp_path, *words)
    assert (done.returncode, problem in done.stderr) == (2, True), done.stderr
    assert list(tmp_path.iterdir()) == []


def test_what_is_ignored_or_written_by_a_comparison_is_not_named_as_missing(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "-b", "main")
    (tmp_path / ".gitignore").write_text("weights/\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "first")
    for name in ("weights/a.pt", "out/base/base-1/run.json", "earlier/base/base-1/run.json", "gate.xml", "mine/a.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "earlier/new").mkdir()
    outputs = [tmp_path / "out", tmp_path / "gate.xml"]
    root = tmp_path.resolve()
    base = Checkout(root, root, "main", tmp_path / "note", git(tmp_path, "rev-parse", "HEAD"))
    (said,) = [note for note in base.list_notes(outputs) if "does not track" in note]
    assert "beside the base's code: mine/; a script" in said
    (tmp_path / "mine/a.txt").unlink()
    assert not any("does not track" in note for note in base.list_notes([tmp_path / "out/base", tmp_path / "gate.xml"]))


SLOW = """
import torch
torch.set_num_threads(1)
torch.manual_seed(0)

def triplet_loss(points):
    total = points.new_zeros(())
    for anchor in points[:120]:
        total = total + torch.relu(1.0 - (anchor - points).square().sum(1)).mean()
    return total / 120

def main():
    model = torch.nn.Linear(64, 32)
    optimizer = torch.optim.Adam(model.parameters())
    rows = torch.randn(256, 64)
    for _ in range(320):
        optimizer.zero_grad()
        points = model(rows)
        loss = triplet_loss(points)
        loss.backward()
        optimizer.step()

main()
"""
MENDED = SLOW.replace(
    "triplet_loss(points)\n        loss.b",
    "torch.relu(1.0 - torch.cdist(points[:120], points).square()).mean()\n        loss.b",
).replace("range(320)", "range(900)")  # else hardly a sample is taken


def test_the_run_of_the_mended_script_names_what_is_gone(tmp_path: Path) -> None:
    def launch(text: str) -> str:
        launched = run_launcher(tmp_path, "-o", "runs/fit", write_script(tmp_path, text), PROFILER_VERDICT="1")
        assert launched.returncode == 0, launched.stderr
        return launched.stderr

    for _ in range(3):  # a busy machine may hide what is slow
        if "triplet_loss()" in launch(SLOW):
            break
    told = launch(MENDED)
    lines = [line for line in told.splitlines() if line.startswith("stepscope: Since 20")]
    assert len(lines) == 2, told
    assert lines[1].endswith(": Changed: train.py +2 −2 lines.")
    assert "triplet_loss()" in lines[0]
    assert re.search(r"” (was|were) taken; no step had been predicted", lines[0])
    assert re.search(r"triplet_loss\(\) (is gone|takes at most)", lines[0])
