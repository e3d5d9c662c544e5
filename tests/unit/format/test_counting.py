"""The count of a finished run's steps, which a training asks for as its last act."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.runs import build_run

# A thread of Arrow's that drops memory of Python's while Python ends is stopped inside a destructor: the process aborts.
COUNT = """
import os, pathlib, sys
import pyarrow.parquet
from collector.format import parts
threads = os.listdir("/proc/self/task")
assert parts.count_equal(pathlib.Path(sys.argv[1]), "steps", "kind", "train") > 0
assert os.listdir("/proc/self/task") == threads
"""


@pytest.mark.parametrize("name", [b"run", b"no-utf-8-\xff"])
def test_counting_the_steps_leaves_no_thread_behind(tmp_path: Path, name: bytes) -> None:
    folder = build_run(tmp_path / "run") / "profiler" / "rank_0"
    moved = tmp_path / os.fsdecode(name)
    (tmp_path / "run").rename(moved)
    command = [sys.executable, "-c", COUNT, str(moved / folder.relative_to(tmp_path / "run"))]
    done = subprocess.run(command, cwd=Path(__file__).parents[3], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
