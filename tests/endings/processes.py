"""The processes of one trial: found by a mark in their environment, told apart from ours, described and ended by pid."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MARK = "ENDINGS_TRIAL"
_STACKS_S = 20.0


@dataclass(frozen=True)
class Found:
    """A process of a trial. `is_ours`: it belongs to the recorder, and may outlive the training."""

    pid: int
    command: str
    is_ours: bool


def find_processes(mark: str) -> list[Found]:
    """Return the live processes whose environment has this mark; a zombie has none."""
    wanted = f"{MARK}={mark}".encode()
    return [_describe(pid) for pid in _list_pids() if wanted in _read(pid, "environ").split(b"\0")]


def _list_pids() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid())


def _read(pid: int, file: str) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/{file}").read_bytes()
    return b""


def _describe(pid: int) -> Found:
    words = _read(pid, "cmdline").split(b"\0")
    return Found(pid, b" ".join(words).decode("utf-8", "replace").strip(), b"collector.expendable" in words)


def holds_file(pid: int, paths: tuple[Path, ...]) -> bool:
    """Say whether a process has one of these files open."""
    with contextlib.suppress(OSError):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                if descriptor.readlink() in paths:
                    return True
    return False


def wait_until_gone(mark: str, until_s: float, ours_too: bool = False) -> list[Found]:
    """Return what is left of a trial when its processes have ended, or at that time."""
    while True:
        left = [one for one in find_processes(mark) if ours_too or not one.is_ours]
        if not left or time.monotonic() > until_s:
            return left
        time.sleep(0.02)


def end_all(mark: str) -> None:
    """Kill every process of a trial by its pid."""
    until_s = time.monotonic() + 10
    while (left := find_processes(mark)) and time.monotonic() < until_s:
        for one in left:
            with contextlib.suppress(OSError):
                os.kill(one.pid, signal.SIGKILL)
        time.sleep(0.05)


def describe_stacks(mark: str) -> str:
    """Return where each process of a trial stands: its threads and, where py-spy or gdb is there, their native stacks."""
    return "\n\n".join(_describe_stack(one) for one in find_processes(mark))


def _describe_stack(one: Found) -> str:
    lines = [f"{one.pid}{' (ours)' if one.is_ours else ''}: {one.command}"]
    with contextlib.suppress(OSError):
        for task in sorted(Path(f"/proc/{one.pid}/task").iterdir(), key=lambda path: int(path.name)):
            name, where = (_read(one.pid, f"task/{task.name}/{file}").decode().strip() for file in ("comm", "wchan"))
            lines.append(f"  thread {task.name} {name}: {where}")
    return "\n".join((*lines, *map(_run, _list_readers(one.pid))))


def _list_readers(pid: int) -> Iterator[list[str]]:
    if shutil.which("py-spy"):
        yield ["py-spy", "dump", "--native", "--pid", str(pid)]
    if shutil.which("gdb"):
        yield ["gdb", "-p", str(pid), "-batch", "-ex", "set pagination off", "-ex", "thread apply all bt 40"]


def _run(command: list[str]) -> str:
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=_STACKS_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{command[0]}: {error}"
    return f"{command[0]}:\n{done.stdout or done.stderr}"
