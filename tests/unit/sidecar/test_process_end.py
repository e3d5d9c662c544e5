"""How the training process ended is seen before its parent takes leave of it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from collector.format.schema.layout import events_path
from collector.sidecar import process as room
from collector.sidecar.process import FACT, ProcessWatch

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="Linux only")


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """A process that ends as it is told on its stdin."""
    code = "import os, sys; how = sys.stdin.readline().split(); getattr(os, how[0])(*map(int, how[1:]))"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) as child:
        yield child
        child.kill()


def end(process: subprocess.Popen[bytes], how: str) -> dict[str, int]:
    watch = ProcessWatch(process.pid, is_running=True)
    assert watch.describe() == {}
    assert process.stdin is not None
    process.stdin.write(f"{how}\n".encode())
    process.stdin.close()
    watch.wait(60.0)
    told: dict[str, int] = watch.describe()[FACT]
    assert abs(told.pop("at_unix_ns") - time.time_ns()) < 60 * 10**9
    return told


@pytest.mark.parametrize(("how", "told"), [("abort", {"signal": 6}), ("_exit 3", {"exit_code": 3}), ("_exit 0", {})])
def test_a_signal_is_told_from_an_exit_code(process: subprocess.Popen[bytes], how: str, told: dict[str, int]) -> None:
    assert end(process, how) == told


def test_a_process_that_is_gone_or_stays_tells_nothing(tmp_path: Path) -> None:
    gone = ProcessWatch(os.getpid(), is_running=False)
    stays = ProcessWatch(os.getpid(), is_running=True)
    for watch in (gone, stays):
        watch.wait(0.01)
        assert watch.describe() == {}
    gone.join(3600.0)  # there is nothing to wait for


def test_a_death_that_the_loop_sees_first_keeps_its_signal(
    process: subprocess.Popen[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A zombie runs no more; the thread that reads how it ended may get a core later."""
    read = room._read_status

    def read_late(pid: int) -> dict[str, int]:
        time.sleep(0.1)
        return read(pid)

    monkeypatch.setattr(room, "_read_status", read_late)
    looks = iter([lambda: True, process.kill])
    monkeypatch.setattr(room, "is_running", lambda notes: bool(next(looks)()))
    events_path(tmp_path).mkdir(parents=True)
    recorder: Any = SimpleNamespace(notes=SimpleNamespace(pid=process.pid), rank_folder=tmp_path, is_finished=False)
    recorder.flush = recorder.read_notes = lambda: None
    recorder.finish = lambda state: None
    room.record(recorder)
    assert recorder.process_end[FACT]["signal"] == 9
