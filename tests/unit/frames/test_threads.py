"""How many threads of a process run: none while it sleeps, those that compute, and never a guess."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from collector.frames import threads
from collector.frames.threads import Threads
from tests.support.waiting import wait_for

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the system shows states of threads on Linux only")
_SLEEPS = "import sys, time; print(flush=True); time.sleep(60)"
_COMPUTES = "import sys\nprint(flush=True)\nwhile True: pass"


@pytest.mark.parametrize("is_listed", [True, False])
@pytest.mark.parametrize(("code", "runs"), [(_SLEEPS, False), (_COMPUTES, True)])
def test_a_thread_runs_or_not_whether_it_is_listed_or_not(code: str, runs: bool, is_listed: bool) -> None:
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        found = Threads(process.pid, process.pid)
        if is_listed:
            found.look()
        wait_for(lambda: found.is_running(process.pid) is runs)
        process.kill()
        process.wait()
        assert not found.is_running(process.pid)


@pytest.mark.parametrize(("code", "running"), [(_SLEEPS, 0), (_COMPUTES, 1)])
def test_threads_that_compute_are_counted(code: str, running: int) -> None:
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        found = Threads(process.pid, process.pid)
        wait_for(lambda: found.look() == (not running, running), found.look)
        process.kill()
        process.wait()
        assert found.look() is None


def test_of_a_process_that_is_not_there_nothing_is_known(tmp_path: Path) -> None:
    assert Threads(1, 1, tmp_path).look() is None


def test_of_a_process_with_many_threads_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "MOST_THREADS", 1)
    done = threading.Event()
    other = threading.Thread(target=done.wait)
    other.start()
    try:
        assert Threads(os.getpid(), os.getpid()).look() is None
    finally:
        done.set()
        other.join()


def test_a_thread_with_an_odd_name_is_told_by_its_state(tmp_path: Path) -> None:
    for number, text in ((1, "1 (a) R (b) S 0"), (2, "2 (c) S) R 0")):
        folder = tmp_path / "7" / "task" / str(number)
        folder.mkdir(parents=True)
        (folder / "stat").write_text(text)
    assert Threads(7, 1, tmp_path).look() == (True, 1)
    assert Threads(7, 2, tmp_path).look() == (False, 1)
    assert Threads(7, 3, tmp_path).look() is None
