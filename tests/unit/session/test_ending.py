"""A run that nobody ended says how it ended, and nothing of the user's ending is changed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from collector import Profiler, Run, open_run
from collector.format.schema.facts import UNTOLD
from collector.session.ending import describe_error, spell_end
from tests.support import forking, shapes
from tests.support.waiting import wait_for
from tests.unit.launch.programs import ROOT, run_launcher, write_script
from tests.unit.session.test_survival import has_ended

TRAINING = """
import os, signal, sys
sys.excepthook = {hook}
from collector import Profiler
from tests.support import forking, shapes
profiler = Profiler("run", window=None)
shapes.plain()
{end}
"""
CHILD = """
import multiprocessing
def train():
    from collector import Profiler
    from tests.support import forking, shapes
    profiler = Profiler("run", window=None)
    shapes.plain()
    raise RuntimeError("boom")
if __name__ == "__main__":
    child = multiprocessing.get_context("fork").Process(target=train)
    child.start()
    child.join()
"""


class Unspeakable(Exception):
    """An exception of a user's whose message cannot be made."""

    def __str__(self) -> str:
        raise RuntimeError("no message")


def run_script(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    script = write_script(folder, text)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return forking.run([sys.executable, script.name], cwd=folder, env=environment)


def read_end(run: Run) -> tuple[str | None, str]:
    """The fact, and the note that pages and reports show."""
    manifest = run.rank(0).manifest
    notes = [warning.text for warning in manifest.warnings if warning.code == "ended_by"]
    return manifest.facts.get("ended_by"), "".join(notes)


def wait_for_tables(folder: Path) -> Run:
    """The script left without waiting for its recorder, which writes the rest."""
    wait_for(lambda: has_ended(folder / "run"))
    return open_run(folder / "run")


def test_an_exception_is_told_by_the_run_and_its_traceback_is_the_users(tmp_path: Path) -> None:
    done = run_script(tmp_path, TRAINING.format(hook="sys.excepthook", end='raise RuntimeError("boom")'))
    run = wait_for_tables(tmp_path)
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[-2] == "RuntimeError: boom"
    assert lines[-1].startswith("stepscope: recorded 10 steps in run; to look at them: stepscope serve ")
    assert "collector" not in "".join(lines[:-1])
    assert read_end(run) == ("RuntimeError: boom", "The script was ended after 10 steps by RuntimeError: boom")
    assert run.state == "complete"


def test_ctrl_c_is_told_beside_a_hook_of_the_users(tmp_path: Path) -> None:
    end = (
        "signal.signal(signal.SIGINT, signal.default_int_handler)\nos.kill(os.getpid(), signal.SIGINT)\nshapes.plain()"
    )
    done = run_script(tmp_path, TRAINING.format(hook='lambda *told: print("mine", told[0].__name__)', end=end))
    assert done.returncode == -signal.SIGINT
    assert done.stdout == "mine KeyboardInterrupt\n"
    assert done.stderr.startswith("stepscope: recorded 10 steps in run; ")
    assert read_end(wait_for_tables(tmp_path))[0] == "KeyboardInterrupt"


def test_a_script_that_leaves_before_analyse_says_so_and_keeps_its_code(tmp_path: Path) -> None:
    done = run_script(tmp_path, TRAINING.format(hook="sys.excepthook", end="sys.exit(3)"))
    assert done.returncode == 3
    assert "recorded 10 steps in run" in done.stderr
    fact, note = read_end(wait_for_tables(tmp_path))
    assert fact == "exit"
    assert note == "The script left before analyse(), after 10 steps: at its last line or by sys.exit()."


def test_an_error_before_the_first_step_is_told_without_advice_on_steps(tmp_path: Path) -> None:
    lines = "import collector\ncollector.Profiler('run', window=None)\nimport no_such_module\n"
    done = run_script(tmp_path, lines)
    assert done.returncode == 1
    assert "profiler.step()" not in done.stderr
    manifest = wait_for_tables(tmp_path).rank().manifest
    assert {warning.code for warning in manifest.warnings} == {"ended_by"}


def test_a_child_of_multiprocessing_tells_its_exception(tmp_path: Path) -> None:
    done = run_script(tmp_path, CHILD)
    assert "RuntimeError: boom" in done.stderr
    assert read_end(wait_for_tables(tmp_path))[0] == "RuntimeError: boom"


@pytest.mark.parametrize(
    ("end", "code", "fact"),
    [('raise RuntimeError("boom")', 1, "RuntimeError: boom"), ("sys.exit(3)", 3, "SystemExit: 3")],
)
def test_stepscope_run_tells_what_ended_the_script(tmp_path: Path, end: str, code: int, fact: str) -> None:
    script = write_script(tmp_path, f"import sys\nfrom tests.support import shapes\nshapes.plain()\n{end}\n")
    launched = run_launcher(tmp_path, "-o", "run", "--options", '{"window": null}', script)
    assert launched.returncode == code
    assert launched.stderr.splitlines()[-1].startswith("stepscope: recorded 10 steps in run; ")
    assert read_end(open_run(tmp_path / "run"))[0] == fact


@pytest.mark.parametrize(
    ("error", "fact"),
    [
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (ValueError("wrong\n  " + 300 * "x"), "ValueError: wrong " + 192 * "x"),
        (SystemExit(3), "SystemExit: 3"),
        (SystemExit(0), None),
        (Unspeakable(), None),
    ],
)
def test_the_context_manager_tells_what_left_it(tmp_path: Path, error: BaseException, fact: str | None) -> None:
    def train() -> None:
        with Profiler(tmp_path, window=None):
            shapes.plain()
            raise error

    with pytest.raises(type(error)) as caught:
        train()
    assert caught.value is error
    assert read_end(open_run(tmp_path))[0] == fact


def test_a_cell_that_failed_ends_nothing(tmp_path: Path) -> None:
    notebook: dict[str, object] = {"Profiler": Profiler, "path": tmp_path, "shapes": shapes}
    with pytest.raises(RuntimeError):
        exec("profiler = Profiler(path, window=None); shapes.plain(); raise RuntimeError('typo')", notebook)
    exec("shapes.plain(); run = profiler.analyse()", notebook)
    run = notebook["run"]
    assert isinstance(run, Run)
    assert read_end(run) == (None, "")
    assert run.rank(0).count_steps() == 20


def test_an_exit_for_an_exception_is_told_by_that() -> None:
    try:
        raise KeyError("missing")
    except KeyError:
        with pytest.raises(SystemExit) as caught:
            sys.exit(1)
    assert describe_error(caught.value) == "KeyError: 'missing'"


def test_a_run_that_only_infers_is_not_said_to_have_trained() -> None:
    assert spell_end("KeyboardInterrupt", 0) == "The script was ended without a training step by KeyboardInterrupt"
    assert "without a training step" in spell_end(UNTOLD, 0)


def test_of_a_traceback_in_a_message_the_last_line_stays() -> None:
    caught = "Caught OSError in DataLoader worker process 1.\nOriginal Traceback (most recent call last):\n  File a\nOSError: "
    assert describe_error(OSError(f"{caught}no picture 300\n")) == (
        "OSError: Caught OSError in DataLoader worker process 1. OSError: no picture 300"
    )
