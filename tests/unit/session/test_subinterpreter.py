"""An interpreter beside the main one: a Profiler there records nothing, says so in one line, and the script goes on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import forking

OUTSIDE = """
import sys
{first}
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters

interpreters.run_string(interpreters.create(), sys.argv[1])
print("outside goes on")
"""
IN_SCRIPT = """
from collector import Profiler, RunError, active_profiler

with Profiler("run", window=(2, 3)) as profiler:
    profiler.pause()
    profiler.resume()
    profiler.step()
try:
    profiler.analyse().print_summary()
except RunError as error:
    assert "no run" in str(error)
else:
    raise AssertionError("a run was given")
assert active_profiler() is None
print("inside goes on")
"""


def run_inside(folder: Path, code: str, first: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PROFILER_OUTPUT_PATH": "run"}
    command = [sys.executable, "-c", OUTSIDE.format(first=first), code]
    return forking.run(command, cwd=folder, env=environment, timeout=60)


@pytest.mark.parametrize("first", ["", "import torch", "import collector.session.profiler"])
@pytest.mark.parametrize("code", [IN_SCRIPT, "import collector.auto; print('inside goes on')"])
def test_nothing_is_recorded_in_it_and_one_line_says_so(tmp_path: Path, code: str, first: str) -> None:
    done = run_inside(tmp_path, code, first)
    assert done.stdout.splitlines() == ["inside goes on", "outside goes on"], done.stderr
    assert done.returncode == 0
    assert done.stderr == (
        "stepscope: nothing is recorded: this is not the main interpreter of the process. The training is not affected.\n"
    )
    assert list(tmp_path.iterdir()) == []
