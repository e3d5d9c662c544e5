"""Commands on a Dask cluster of processes of its own: what they make there, and what they say when it goes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from collector.format.schema import layout
from collector.format.schema.errors import TraceError
from collector.traces.workers import Cluster
from tests.support.runs import RunPlan, build_run

PROGRAM = [sys.executable, "-m", "profiler_server.cli"]
DASK = [sys.executable, "-m", "dask"]
PRIVATE = ("--no-dashboard", "--host", "127.0.0.1")


@dataclass(frozen=True)
class Served:
    """A scheduler with one worker, each a process that a test may end."""

    address: str
    scheduler: subprocess.Popen[bytes]
    worker: subprocess.Popen[bytes]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    pytest.importorskip("distributed")
    contact = tmp_path / "scheduler.json"
    told = {"cwd": tmp_path, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    place = ("--scheduler-file", str(contact))
    scheduler = subprocess.Popen([*DASK, "scheduler", *PRIVATE, "--port", "0", *place], env=environment, **told)  # type: ignore[call-overload]
    wait_for(contact.exists)
    worker = subprocess.Popen(
        [*DASK, "worker", *PRIVATE, *place, "--nthreads", "1", "--no-nanny", "--memory-limit", "0"],
        env=environment,
        **told,  # type: ignore[call-overload]
    )
    try:
        yield Served(json.loads(contact.read_text(encoding="utf-8"))["address"], scheduler, worker)
    finally:
        for process in (worker, scheduler):
            process.kill()
            process.wait()


def wait_for(condition: Callable[[], bool], limit_s: float = 120.0) -> None:
    end_s = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.05)


def wait_long(mark: Path) -> None:
    mark.touch()
    time.sleep(600)


def test_a_scheduler_that_is_killed_in_the_middle_is_one_line(
    served: Served, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    workers, marks = Cluster(served.address), [tmp_path / "begun0", tmp_path / "begun1"]
    results = workers.run(wait_long, marks, lambda done: None)
    try:

        def kill() -> None:
            wait_for(marks[0].exists)
            served.scheduler.send_signal(signal.SIGKILL)

        threading.Thread(target=kill).start()
        with pytest.raises(TraceError, match=rf"scheduler of the cluster at {served.address} was lost.*repeat this"):
            list(results)
    finally:
        workers.close()
    assert "Traceback" not in capfd.readouterr().err


def test_recover_on_a_cluster_says_what_it_says_here(served: Served, tmp_path: Path) -> None:
    for name in ("one", "several"):
        path = build_run(tmp_path / name, RunPlan(steps=12, ranks=3, state="crashed", operators=False))
        steps = layout.table_file(layout.rank_path(path, 1), "steps")
        steps.write_bytes(steps.read_bytes()[:500])

    def recover(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*PROGRAM, "recover", *words], cwd=tmp_path, capture_output=True, text=True, timeout=300)

    alone, there = recover("one"), recover("several", "--dask", served.address)
    assert (there.returncode, there.stdout) == (0, alone.stdout)
    assert "rank 1: repaired" in there.stdout
    both = recover("one", "--dask", served.address, "--jobs", "2")
    assert (both.returncode, both.stdout) == (2, "")
    assert "--jobs and --dask" in both.stderr
