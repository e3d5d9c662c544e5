"""Write the last lines of a training for the terminal: its bottleneck, the change to make, and the expected gain.

The server's code judges the run in a process of its own, so that a training never loads it. The training waits at most
`PATIENCE_S`; the page shows the verdict later. Judging does not begin when memory is short.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import shlex
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil

from collector.expendable import build_environment
from collector.server import SERVER

VARIABLE = "PROFILER_VERDICT"
"""`PROFILER_VERDICT=0` switches the lines off."""
PATIENCE_S = 5.0
REPORT_S = 20.0
"""The same with a report for a tracker."""
LEAST_FREE_BYTES = 256 << 20
"""With less free memory, the judging might make the system kill the training."""
_GROUPS = Path("/sys/fs/cgroup")
_FILES = (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes"))
_log = logging.getLogger("stepscope")


def judge_briefly(run_path: Path, world_size: int = 1, html: Path | None = None) -> list[str]:
    """Return the lines on a run's verdict, and write its report to `html`, if that is a path. The file may be missing.

    The list is empty if PROFILER_VERDICT is 0, if the server is not installed or fails, or if memory is short. If
    judging takes too long or the job has several ranks, the only line is the command that prints the verdict. A job
    holds its devices until its last rank has ended, and the tables of one rank give no verdict on the others.
    """
    later = f"for the verdict: stepscope report --brief {shlex.quote(str(run_path))}"
    if (
        os.environ.get(VARIABLE) == "0"
        or importlib.util.find_spec(SERVER) is None
        or measure_headroom() < LEAST_FREE_BYTES
    ):
        return []
    if world_size > 1:
        return [later]
    more = () if html is None else ("--html", str(html))
    try:
        done = subprocess.run(
            [sys.executable, "-m", "collector.expendable", SERVER, "report", "--brief", str(run_path), *more],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            cwd="/",  # a file of the user's in the current folder must not shadow a module
            env=build_environment(),
            start_new_session=True,
            timeout=PATIENCE_S if html is None else REPORT_S,
        )
        said = done.stdout if done.returncode == 0 else b""
    except subprocess.TimeoutExpired as error:
        said = (error.stdout or b"").rpartition(b"\n")[0]  # the verdict comes before what became of earlier advice
        if not said:
            return [later]
    except (OSError, ValueError) as error:
        _log.debug("stepscope: no verdict at the end: %s", error)
        return []
    lines = said.decode("utf-8", "replace").splitlines()
    return ["".join(letter if letter.isprintable() else "?" for letter in line) for line in lines]


def measure_headroom(processes: Path = Path("/proc/self/cgroup"), groups: Path = _GROUPS) -> int:
    """Return how many bytes of memory are free: on the machine, or in the fullest cgroup of this process if fewer.

    `processes` lists the cgroups of this process; `groups` is the folder of all cgroups.
    """
    free_bytes = int(psutil.virtual_memory().available)
    for folder in _list_groups(processes, groups):
        for limit, usage in _FILES:
            with suppress(OSError, ValueError):  # no limit here, or a cgroup of the other version
                most = int((folder / limit).read_text("ascii"))
                free_bytes = min(free_bytes, most - int((folder / usage).read_text("ascii")) + _find_cache(folder))
    return free_bytes


def _list_groups(processes: Path, groups: Path) -> list[Path]:
    found = [groups, groups / "memory"]
    with suppress(OSError):
        for line in processes.read_text("utf-8").splitlines():
            _, kinds, path = line.split(":", 2)
            root = groups / "memory" if "memory" in kinds.split(",") else groups
            if not kinds or "memory" in kinds.split(","):
                own = root / path.lstrip("/")
                found += [folder for folder in (own, *own.parents) if folder.is_relative_to(root)]
    return found


def _find_cache(folder: Path) -> int:
    """Return the bytes of a cgroup's file cache. The system frees this cache before it kills a process."""
    for line in (folder / "memory.stat").read_text("ascii").splitlines():
        name, _, value = line.partition(" ")
        if name in ("inactive_file", "total_inactive_file"):
            return int(value)
    return 0
