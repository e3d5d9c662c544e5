"""A still world for what is taken: the runs lie in one place, the clock stands, and threads are waited for."""

from __future__ import annotations

import fcntl
import json
import re
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest.mock import patch

LIVE = ".live"
"""A file of this name beside runs says that they were copied while they recorded, and do so still."""
LATER_S = 3600.0
"""The clock stands so long behind the last moment that manifests tell of: others' files in the temporary directory must not look abandoned."""
_MOMENT = re.compile(r'_unix_ns": ?(\d{10,20})')
_HOST = re.compile(r'"host": ?"([^"]*)"')
_BACKGROUND = "background"
"""The name of the threads in which the server works while no request waits."""


@contextmanager
def hold_place() -> Iterator[Path]:
    """Give the one folder to which runs are copied: paths are shortened on pages, so their length must be the same."""
    root = Path(tempfile.gettempdir()).resolve() / "stepscope-snapshot"
    root.mkdir(exist_ok=True)
    with (root / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield root


@contextmanager
def copy_still(folder: Path, root: Path) -> Iterator[Path]:
    """Copy a folder of runs below `root`, and stop the clock at a time after it for this process."""
    base = root / folder.name
    shutil.rmtree(base, ignore_errors=True)
    shutil.copytree(folder, base, symlinks=True)
    told = "".join(path.read_text("utf-8", "replace") for path in sorted(base.rglob("r[au]n*.json")))
    now_s = max(map(int, _MOMENT.findall(told)), default=0) // 10**9 + LATER_S
    host = next(iter(_HOST.findall(told)), "")
    _revive(base)
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, base, True)
        stack.enter_context(patch.object(tempfile, "tempdir", str(root)))
        stack.enter_context(patch.object(time, "time", lambda: now_s))
        stack.enter_context(patch.object(time, "time_ns", lambda: int(now_s) * 10**9))
        stack.enter_context(patch.object(socket, "gethostname", lambda: host))
        yield base


def _revive(base: Path) -> None:
    """Let the runs that were copied while they recorded be recorded by a process that is always there."""
    for path in base.rglob("rank.json") if (base / LIVE).exists() else ():
        path.write_text(json.dumps({**json.loads(path.read_bytes()), "pid": 1, "pid_started": None}), "utf-8")


class Work:
    """The threads of the server that work in the background: `wait` says whether there was any since it was asked last."""

    def __init__(self) -> None:
        self._begun: list[threading.Thread] = []

    @contextmanager
    def watch(self) -> Iterator[Work]:
        start = threading.Thread.start

        def note(thread: threading.Thread) -> None:
            start(thread)
            if thread.name == _BACKGROUND:
                self._begun.append(thread)

        with patch.object(threading.Thread, "start", note):
            yield self

    def wait(self) -> bool:
        begun, self._begun = self._begun, []
        for thread in begun:
            thread.join()
        return bool(begun)
