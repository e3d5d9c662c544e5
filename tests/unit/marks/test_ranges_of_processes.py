"""Ranges of threads and processes, and what is kept of them when one is killed."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import collector
from collector.format.schema.errors import RunError
from tests.support.marked import record_ranges
from tests.support.scripts import run_script


def test_each_thread_has_its_own_stack(tmp_path: Path) -> None:
    together = threading.Barrier(2)

    def work(name: str) -> None:
        with collector.record(name):
            together.wait()
            with collector.record("inner"):
                together.wait()

    def loop() -> None:
        threads = [threading.Thread(target=work, args=(name,)) for name in ("a", "b")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    rows = record_ranges(tmp_path, loop)
    assert sorted(rows.path) == ["a", "a/inner", "b", "b/inner"]
    assert rows.thread_id.nunique() == 2


def make_process(method: str) -> Any:
    context: Any = multiprocessing.get_context(method)
    return context.Process


def mark_in_child(name: str) -> None:
    with collector.record(name), collector.record("inner"):
        time.sleep(0.001)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_children_mark_in_the_run_of_their_parent(tmp_path: Path, method: str) -> None:
    def loop() -> None:
        with collector.record("parent"):
            child = make_process(method)(target=mark_in_child, args=("child",))
            child.start()
            child.join()
            assert child.exitcode == 0

    rows = record_ranges(tmp_path, loop)
    assert sorted(rows.path) == ["child", "child/inner", "parent"]
    assert rows.id.is_unique
    assert rows.set_index("path").process["parent"] == os.getpid() != rows.set_index("path").process["child"]


def test_what_a_killed_process_marked_is_kept(tmp_path: Path) -> None:
    script = """
        import os, signal, time, collector
        profiler = collector.Profiler("run", window=None)
        with collector.record("outer"):
            for number in range(1000):
                with collector.record("inner"):
                    pass
            os.kill(os.getpid(), signal.SIGKILL)
    """
    run_script(tmp_path, script, expected=-9)
    deadline = time.monotonic() + 120
    while not has_ended(tmp_path / "run") and time.monotonic() < deadline:
        time.sleep(0.1)
    run = collector.open_run(tmp_path / "run")
    assert run.frame("ranges").path.value_counts().to_dict() == {"outer/inner": 1000}


def has_ended(path: Path) -> bool:
    try:
        return collector.open_run(path).rank().manifest.ended_unix_ns is not None
    except RunError:  # the recorder has hardly begun
        return False
