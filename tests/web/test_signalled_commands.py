"""A command that is ended from outside while it writes a file leaves nothing of it."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.forking import Forked
from tests.support.runs import RunPlan, build_run

# Stands still where the new file is whole and has its hidden name still.
SLOW = """
import os, pathlib, signal, sys, time
from profiler_server import cli
real = os.replace
def replace(source, target, **folders):
    folder = os.readlink("/proc/self/fd/%d" % folders["dst_dir_fd"]) if folders else ""
    if str(source).endswith(".partial") and {name!r} in os.path.join(folder, target):
        pathlib.Path("mark").touch()
        time.sleep(4 if {ignored!r} else 600)
    real(source, target, **folders)
os.replace = replace
# Whoever started the tests may have had signals ignored.
signal.signal(signal.SIGHUP, signal.SIG_IGN if {ignored!r} else signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.argv = ["stepscope", *sys.argv[1:]]
cli.main()
"""
COMMANDS = {
    "export": ("export", "run", "-o", "out/x.json.gz"),
    "report": ("report", "run", "--html", "out/x.html"),
    "upload": ("upload", "run", "file://{here}/out/x"),
}


def begin(folder: Path, command: str, ignored: bool = False) -> subprocess.Popen[str]:
    """Start a command and return it where it is about to name its file."""
    build_run(folder / "run", RunPlan(steps=12))
    (folder / "out").mkdir()
    words = [word.format(here=folder) for word in COMMANDS[command]]
    code = SLOW.format(name="out/x", ignored=ignored)
    whole = [sys.executable, "-c", code, *words]
    started = Forked(whole, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    end_s = time.monotonic() + 120
    while not (folder / "mark").exists():
        assert started.poll() is None, started.communicate()
        assert time.monotonic() < end_s
        time.sleep(0.05)
    return started


def list_files(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob("*") if path.is_file() and path.name != "run.json"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
@pytest.mark.parametrize("command", list(COMMANDS))
def test_nothing_half_stays(tmp_path: Path, command: str, number: signal.Signals) -> None:
    started = begin(tmp_path, command)
    started.send_signal(number)
    _, said = started.communicate(timeout=120)
    assert "Traceback" not in said
    assert started.returncode == 128 + number
    assert list_files(tmp_path / "out") == []


def test_below_nohup_a_command_goes_on(tmp_path: Path) -> None:
    started = begin(tmp_path, "report", ignored=True)
    started.send_signal(signal.SIGHUP)
    _, said = started.communicate(timeout=120)
    assert (started.returncode, said) == (0, "")
    assert list_files(tmp_path / "out") == ["x.html"]
