"""Start, stop and end the processes of trials. A process runs in its turns only. All that it started ends with it."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import psutil

from collector.launch.trying.inside import REPORTS, TURNS, Span

_SET_CHILD_SUBREAPER = 36
_LOOK_EVERY_S = 0.05
_GONE_S = 5.0
_BUSY_CORES, _IDLE_FRAC = 0.25, 0.2
_MOST_BYTES = 1 << 20
_IMPORTS_S = 120.0


class TurnFailed(Exception):
    """A process ended, or was too slow, before it reported the end of its turn. `code` is its exit code, None if it
    still ran.
    """

    def __init__(self, code: int | None) -> None:
        super().__init__(code)
        self.code = code


class _Started(Protocol):
    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...


@dataclass
class _Forked:
    pid: int
    code: int | None = None

    def poll(self) -> int | None:
        if self.code is None:
            with suppress(ChildProcessError):
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                self.code = os.waitstatus_to_exitcode(status) if pid else None
        return self.code


class Warm:
    """A Python with PyTorch imported, whose forks are trials. Making it raises OSError if it cannot fork safely."""

    def __init__(self, imports: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        words = [sys.executable, "-m", f"{__package__}.warm", str(theirs.fileno()), json.dumps(list(imports))]
        with theirs, log.open("wb") as file:
            self.process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env=environment,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self._channel.settimeout(_IMPORTS_S)
        try:
            if self._channel.recv(16) != b"ready":
                raise OSError("what is imported has started threads")
        except OSError:
            self.end()
            raise

    def start(self, words: Sequence[str], environment: Mapping[str, str], log: Path) -> _Started:
        self._channel.send(json.dumps({"words": words, "environment": dict(environment), "log": str(log)}).encode())
        return _Forked(int(self._channel.recv(16)))

    def end(self) -> None:
        self._channel.close()
        self.process.kill()
        self.process.wait()


def start_fresh(words: Sequence[str], environment: Mapping[str, str], log: Path) -> _Started:
    """Start `stepscope run` with the arguments `words`, in a session of its own."""
    with log.open("wb") as file:
        return subprocess.Popen(
            [sys.executable, "-m", "collector.launch", *words],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            env=environment,
            start_new_session=True,
        )


class Crew:
    """The processes of a search. Inside the block, orphans of these processes become children of this process."""

    def __init__(self) -> None:
        self._before = _list_children()
        self._members: list[TurnTaker] = []
        self._warm: Warm | None = None

    def __enter__(self) -> Crew:
        _adopt_orphans(True)
        return self

    def __exit__(self, *_: object) -> None:
        try:
            for member in list(self._members):
                self.end(member)
            if self._warm is not None:
                self._warm.end()
        finally:
            _adopt_orphans(False)

    def warm_up(self, imports: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        """Let later processes be forks of a Python with PyTorch imported, if that is possible."""
        with suppress(OSError):
            self._warm = Warm(imports, environment, log)

    @property
    def is_warm(self) -> bool:
        return self._warm is not None

    def start(self, words: Sequence[str], environment: Mapping[str, str], folder: Path, log: Path) -> TurnTaker:
        """Start a process of `stepscope run` with the arguments `words`; its pipes are made in `folder`."""
        pipes = tuple(_make_pipe(folder / name) for name in (REPORTS, TURNS))
        start = start_fresh if self._warm is None else self._warm.start
        member = TurnTaker(start(words, environment, log), pipes)
        self._members.append(member)
        return member

    def end(self, member: TurnTaker) -> None:
        """Kill a process with all processes that it started, orphans included."""
        self._members.remove(member)
        end = time.monotonic() + _GONE_S
        while (left := [*member.list_processes(), *self._list_strays()]) and time.monotonic() < end:
            for each in left:
                with suppress(psutil.Error):
                    each.kill()
            psutil.wait_procs(left, timeout=1.0)
        member.close()

    def _list_strays(self) -> list[psutil.Process]:
        known = {each.pid for each in self._members} | {each.pid for each in self._before}
        known |= {self._warm.process.pid} if self._warm is not None else set()
        return [each for each in _list_children() if each.pid not in known]


class TurnTaker:
    """A process that runs in its turns only. It has begun its first turn when this object is made."""

    def __init__(self, process: _Started, pipes: tuple[int, ...]) -> None:
        self._process = process
        self._reports, self._turns = pipes
        self._root = psutil.Process(process.pid)
        self.pid = process.pid

    def take(self, span: Span, limit_s: float) -> dict[str, Any]:
        """Let the suspended process run for a turn, then `wait`; return the report of the turn. Raises TurnFailed."""
        self._signal(signal.SIGCONT)
        os.write(self._turns, span.encode())
        return self.wait(limit_s)

    def wait(self, limit_s: float) -> dict[str, Any]:
        """Wait for the end of the turn, suspend the process and its children, and return the report of the turn. Raises
        TurnFailed."""
        end, text = time.monotonic() + limit_s, b""
        while not text.endswith(b"\n"):
            code = self._process.poll()
            if select.select([self._reports], [], [], _LOOK_EVERY_S)[0]:
                text += os.read(self._reports, _MOST_BYTES)
            elif code is not None or time.monotonic() > end:
                raise TurnFailed(code)
        self._signal(signal.SIGSTOP)
        report: dict[str, Any] = json.loads(text)
        return report

    def count_bytes(self) -> int:
        """Return the memory of the process and its children in bytes. Memory that they share counts once for each of
        them.
        """
        total = 0
        for each in self.list_processes():
            with suppress(psutil.Error):
                total += each.memory_info().rss
        return total

    def close(self) -> None:
        self._process.poll()
        for pipe in (self._reports, self._turns):
            os.close(pipe)

    def list_processes(self) -> list[psutil.Process]:
        with suppress(psutil.NoSuchProcess):
            return [self._root, *self._root.children(recursive=True)]
        return []

    def _signal(self, number: int) -> None:
        for each in self.list_processes():
            with suppress(psutil.Error):
                each.send_signal(number)


def _make_pipe(path: Path) -> int:
    """Make a named pipe and open it for reading and writing, so that a reader sees no end of file when a writer closes."""
    os.mkfifo(path)
    return os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)


def _adopt_orphans(is_wanted: bool) -> None:
    """Make orphaned descendants children of this process, or stop doing so. A launcher's workers may be orphaned."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, int(is_wanted), 0, 0, 0)


def _list_children() -> list[psutil.Process]:
    return list(psutil.Process().children())


class Neighbours:
    """A meter of the processors that other programs use, from the moment the object is made."""

    def __init__(self) -> None:
        self._begun = self._read()

    def count(self) -> tuple[float, float]:
        """Return the mean number of processors that other programs used, and the mean number of idle processors."""
        elapsed_s, own_s, busy_s, idle_s = (now - then for now, then in zip(self._read(), self._begun, strict=True))
        return max(busy_s - own_s, 0.0) / elapsed_s, idle_s / elapsed_s

    def describe(self) -> str:
        """Return a sentence if other programs took processors from the trials; "" if not."""
        others, idle = self.count()
        cores = psutil.cpu_count() or 1
        if others < _BUSY_CORES or idle > _IDLE_FRAC * cores:
            return ""
        return f"Other programs used {others:.1f} of {cores} processors. Try on an idle machine: gains differ there."

    def _read(self) -> tuple[float, float, float, float]:
        times = psutil.cpu_times()._asdict()
        idle_s = times["idle"] + times.get("iowait", 0.0)
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        guest_s = times.get("guest", 0.0) + times.get("guest_nice", 0.0)  # user and nice already include these times
        own_s = sum(each.ru_utime + each.ru_stime for each in used)
        return time.monotonic(), own_s, sum(times.values()) - guest_s - idle_s, idle_s
