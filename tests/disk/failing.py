"""Let every call that the recorder makes to the disk fail, one after the other: python -m tests.disk.failing [every].

Run below the watching library: see `tests.disk.watching`. What is wrong is printed, a line each, then the counts.
"""

from __future__ import annotations

import ctypes
import errno
import gc
import os
import shutil
import sys
import tempfile
from pathlib import Path

from collector.format.run import open_run
from collector.options import parse_options
from collector.session.recording import Recording
from collector.sidecar.coverage_warnings import spell_problem
from collector.sidecar.process import recover_run
from collector.sidecar.recorder import Recorder
from tests.support import shapes

NUMBERS = (errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EROFS, errno.EMFILE, errno.ENOMEM)
FOR_EVER = 1 << 40
STEPS = 30
_disk = ctypes.CDLL(None)


def fail(first: int, last: int, number: int) -> None:
    """Let the calls from the first to the last of those that follow fail; none for 0."""
    _disk.disk_fail(ctypes.c_long(first), ctypes.c_long(last), number)


def prepare(path: Path) -> None:
    """Leave a run whose training has ended and of which there is no table yet."""
    recording = Recording(path, parse_options({"window": None}), with_sidecar=False)
    recording.resume()
    model = shapes.Net()
    optimizer = shapes.sgd(model)
    for _ in range(STEPS // 10):
        shapes.train_on(model, optimizer, shapes.loader())
    recording.leave()


def record(path: Path) -> str:
    """Do all that a recorder does; return what it says is wrong, "" if nothing is."""
    try:
        recorder = Recorder(path / "profiler" / "rank_0")
        recorder.flush()
        recorder.poll()
        recorder.flush()
        recorder.finish("complete")
    except OSError as error:
        return spell_problem(error, path)
    return spell_problem(recorder.problem, path) if recorder.problem else ""


def find_fault(path: Path, number: int, lasts: bool, first: int) -> str:
    """Record while calls fail, then recover on a whole disk; return what was wrong, "" if nothing."""
    before = os.listdir("/proc/self/fd")
    fail(first, FOR_EVER if lasts else first, number)
    problem = record(path)
    fail(0, 0, 0)
    gc.collect()
    if len(os.listdir("/proc/self/fd")) > len(before):
        return "descriptors were left open"
    if problem and os.strerror(number) not in problem:
        return f"the reason is said to be: {problem}"
    recover_run(path)
    run = open_run(path)
    found = (run.state, run.rank(0).count_steps(), [warning.code for warning in run.rank(0).manifest.warnings])
    left = [file.name for file in path.rglob("*.partial")]
    return "" if found == ("complete", STEPS, []) and not left else f"recovered: {found}, {left}"


def main(every: int) -> int:
    with tempfile.TemporaryDirectory() as name:
        whole, path = Path(name, "whole"), Path(name, "run")
        prepare(whole)
        _disk.disk_watch(os.fsencode(path), -1)
        shutil.copytree(whole, path)
        fail(0, 0, 0)
        record(path)
        calls = int(_disk.disk_count())
        wrong = tried = 0
        for place, first in enumerate(range(1, calls + 1, every)):
            for number in NUMBERS if every == 1 else (NUMBERS[place % len(NUMBERS)],):
                for lasts in (False, True):
                    shutil.rmtree(path)
                    shutil.copytree(whole, path)
                    fault = find_fault(path, number, lasts, first)
                    tried, wrong = tried + 1, wrong + bool(fault)
                    if fault:
                        print(f"call {first}{' and all others' if lasts else ''}, {os.strerror(number)}: {fault}")
        print(f"{calls} calls, {tried} failures tried, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1))
