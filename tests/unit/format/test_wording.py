"""Counts and their nouns."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from collector.format.schema.wording import format_number_of, format_ranks
from profiler_server.format import format_cores
from tests.support.runs import build_run


@pytest.mark.parametrize(
    ("count", "noun", "text"),
    [(1, "step", "1 step"), (0, "step", "0 steps"), (12_480, "event", "12,480 events"), (2, "batch", "2 batches")],
)
def test_a_noun_follows_its_count(count: int, noun: str, text: str) -> None:
    assert format_number_of(count, noun) == text


@pytest.mark.parametrize(
    ("there", "world_size", "text"),
    [(1, 1, "1 rank"), (4, 4, "4 ranks"), (2, 128, "2 of 128 ranks"), (1, 2, "1 of 2 ranks"), (3, 1, "3 ranks")],
)
def test_ranks_that_are_not_here_are_counted(there: int, world_size: int, text: str) -> None:
    assert format_ranks(there, world_size) == text


def test_a_quota_may_be_a_part_of_a_core() -> None:
    assert [format_cores(cores) for cores in (1.0, 1.5, 16.0)] == [
        "1 usable core",
        "1.5 usable cores",
        "16 usable cores",
    ]


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
