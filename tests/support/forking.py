"""Processes of Python that are forked from one which has imported PyTorch already: a quarter of the processor time.

For what needs a process of its own, though not an interpreter of its own. tests/support/zygote.py says what differs.
"""

from __future__ import annotations

import atexit
import ctypes
import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
MOST_DESCRIPTORS = 16
MOST_BYTES = 1 << 20
_PYTHON = sys.executable
_SUBREAPER = 36
"""PR_SET_CHILD_SUBREAPER of <sys/prctl.h>."""
_execute = subprocess.Popen._execute_child  # type: ignore[attr-defined]
_channels: dict[int, socket.socket] = {}
"""By process: a fork of this one must ask a server of its own."""


def _fork_child(
    self: subprocess.Popen[Any], args: Any, executable: Any, preexec_fn: Any, close_fds: Any, pass_fds: Any, *rest: Any
) -> None:
    """Stand in for `Popen._execute_child`."""
    words: list[str] = [] if isinstance(args, (str, bytes)) else [os.fsdecode(word) for word in args]
    is_plain = len(words) > 1 and (words[1] in ("-c", "-m", "-u") or not words[1].startswith("-"))
    has_server = isinstance(self, Forked) or os.getpid() in _channels  # a script's own fork has none
    if not has_server or not is_plain or words[0] != _PYTHON or preexec_fn is not None:
        _execute(self, args, executable, preexec_fn, close_fds, pass_fds, *rest)
        return
    cwd, environment, _, _, _, *pipes = rest
    places = {number: number if given == -1 else given for number, given in enumerate((pipes[0], pipes[3], pipes[5]))}
    places |= {number: number for number in pass_fds}
    self.pid = _ask(
        words[1:], os.fsdecode(cwd or os.getcwd()), os.environ if environment is None else environment, places
    )
    self._child_created = True  # type: ignore[attr-defined]
    self._close_pipe_fds(*pipes[:6])  # type: ignore[attr-defined]


class Forked(subprocess.Popen[Any]):
    """A process of `[sys.executable, "-u"?, "-c" | "-m" | script, …]` with the options of Popen, in a session of its own."""

    _execute_child = _fork_child


def run(words: Sequence[Any], *, timeout: float = 300.0, **options: Any) -> subprocess.CompletedProcess[Any]:
    """Do what `subprocess.run(…, capture_output=True, text=True)` does."""
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options}
    with Forked([*map(os.fspath, words)], **options) as process:
        try:
            output, errors = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(words, process.returncode, output, errors)


def fork_from(channel: socket.socket) -> None:
    """Have every process of Python that this one starts forked from the server behind the channel."""
    _channels[os.getpid()] = channel
    subprocess.Popen._execute_child = _fork_child  # type: ignore[attr-defined]


def _ask(words: list[str], cwd: str, environment: Mapping[str, str], places: Mapping[int, int]) -> int:
    """Have a process forked, and return its number. `places` are the descriptors that it gets, by their numbers there."""
    umask = os.umask(0)
    os.umask(umask)
    request = {"words": words, "cwd": cwd, "umask": umask, "environment": {**environment}, "numbers": [*places]}
    channel, libc = _channels.get(os.getpid()) or _start(), ctypes.CDLL(None)
    libc.prctl(_SUBREAPER, 1, 0, 0, 0)  # what the server forks becomes a child of ours
    try:
        socket.send_fds(channel, [json.dumps(request).encode()], list(places.values()))
        return int(channel.recv(16))
    finally:
        libc.prctl(_SUBREAPER, 0, 0, 0, 0)


def _start() -> socket.socket:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        server = subprocess.Popen(
            [_PYTHON, "-m", "tests.support.zygote", str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
    _channels[os.getpid()] = ours
    atexit.register(_end, os.getpid(), ours, server)
    return ours


def _end(pid: int, channel: socket.socket, server: subprocess.Popen[bytes]) -> None:
    if os.getpid() == pid:
        channel.close()
        server.wait()
