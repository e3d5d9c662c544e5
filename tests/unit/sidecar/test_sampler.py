"""The thread that reads stacks keeps to its share, outlives the processes that it reads, and ends when it is told to."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from collector.format.schema.layout import events_path
from collector.frames.offers import Family, Offers
from collector.frames.posting import TRAINER, post_thread
from collector.sidecar import stack_sampling as room
from collector.sidecar.assemblers.stacks import StacksAssembler
from collector.sidecar.stack_sampling import StackBook, StackSampler
from tests.unit.sidecar.test_steady import CLOCK, Assembly

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="stacks are read on Linux only")

_WORKER = """
import os, sys
from pathlib import Path
from collector.format.schema.layout import events_path
from collector.frames.offers import Family
from collector.frames.offers import Offers
from collector.frames.posting import post_thread
post_thread(Path(sys.argv[1]), 0, 0, os.getppid())
print(flush=True)
sys.stdin.read()
"""


def _offers(folder: Path) -> Offers:
    return Offers(folder, Family(os.getpid()))


def _wait_for(sampler: StackSampler, replica: int) -> bool:
    deadline = time.monotonic() + 60.0
    while time.monotonic() < deadline:
        if any(sample.replica == replica for sample in sampler.take()):
            return True
        time.sleep(0.02)
    return False


def test_the_training_thread_and_workers_are_read_until_they_end(tmp_path: Path) -> None:
    sampler = StackSampler(_offers(tmp_path), StackBook(), 64.0)
    sampler.start()
    post_thread(tmp_path, TRAINER, -1, os.getpid())
    arguments = [sys.executable, "-c", _WORKER, str(tmp_path)]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as worker:
        assert worker.stdout is not None
        worker.stdout.readline()
        assert _wait_for(sampler, 0)
        worker.kill()
    sampler.take()
    assert _wait_for(sampler, TRAINER)
    sampler.stop()
    assert sampler.problem == ""
    assert all(sample.replica == TRAINER for sample in sampler.take())


def test_samples_that_nobody_takes_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "MOST_SAMPLES", 3)
    monkeypatch.setattr(StackBook, "number", lambda *_: 1)
    sampler = StackSampler(_offers(tmp_path), StackBook(), 64.0)
    post_thread(tmp_path, TRAINER, -1, os.getpid())
    sampler._look()
    for _ in range(10):
        sampler._sample_all()
    assert len(sampler.take()) == 3


def test_reading_that_costs_more_than_its_share_waits(tmp_path: Path) -> None:
    sampler = StackSampler(_offers(tmp_path), StackBook(), 2.0)
    usual = [sampler._choose_wait(100.0, time.thread_time()) for _ in range(200)]
    assert len(set(usual)) > 100
    assert max(usual) <= 1.5 / room.RATE_PER_S
    for _ in range(50):
        sampler._note_lateness(0.05)  # there is no processor to be had
    assert 0.04 < sampler._choose_wait(100.0, time.thread_time()) < 0.2
    # A second of a processor in a hundred seconds is the whole share of two processors, two seconds are too many.
    assert sampler._choose_wait(100.0, time.thread_time() - 2.0) == 1.0


def test_a_system_that_forbids_reading_is_named_in_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str, flags: int, **rest: int) -> int:
        if path == "mem":
            raise PermissionError(13, "Permission denied", path)
        return opened(path, flags, **rest)

    opened = os.open
    assembly = Assembly(tmp_path)
    assembler = StacksAssembler(tmp_path, CLOCK)
    post_thread(events_path(tmp_path), TRAINER, -1, os.getpid())
    assembler.follow(os.getpid())
    assert assembler._sampler is not None
    assert assembler.describe() == {}
    monkeypatch.setattr(os, "open", refuse)
    assembler._sampler._look()
    monkeypatch.undo()
    assembly.log.close()
    ((signal,),) = assembler.describe().values()
    assert (signal["name"], signal["state"]) == ("stacks", "unavailable")
    assert "ptrace_scope" in signal["reason"]


def test_a_training_that_the_system_does_not_show_is_named_in_the_run(tmp_path: Path) -> None:
    assembly = Assembly(tmp_path)
    assembly.log.close()
    assembler = StacksAssembler(tmp_path, CLOCK)
    assert assembler.describe() == {}
    assembler.follow(1 << 22)
    assert assembler.finish() == {}
    ((signal,),) = assembler.describe().values()
    assert (signal["name"], signal["state"]) == ("stacks", "unavailable")
    assert "cannot be looked at" in signal["reason"]


def test_stopping_one_that_never_began_is_nothing(tmp_path: Path) -> None:
    sampler = StackSampler(_offers(tmp_path), StackBook())
    sampler.stop()
    assert (sampler.take(), sampler.problem, sampler.refusal) == ([], "", "")
