"""A Python process that has imported PyTorch. It forks for each trial, which saves the seconds of the import.

The process has a single thread and has not touched a device. Each trial gets its environment, a POSIX session and a log
of its own, and goes on as `stepscope run` would. A trial is forked twice and so becomes an orphan. The requesting
process, a child subreaper, adopts it and can wait for it.
"""

from __future__ import annotations

import importlib
import json
import os
import socket
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Sequence
from typing import Any

_MOST_BYTES = 1 << 20


def import_ahead(names: Sequence[str]) -> None:
    """Import these modules, before any trial is forked. The current folder is not searched."""
    current = sys.path.pop(0)
    for name in names:
        importlib.import_module(name)
    sys.path.insert(0, current)


def serve(channel: socket.socket) -> list[str] | None:
    """Fork for each request that comes over `channel`. In the fork, return the words of the command line in the
    request. Return None once the requesting process has ended.
    """
    is_safe = threading.active_count() == 1 and not sys.modules["torch"].cuda.is_initialized()
    channel.send(b"ready" if is_safe else b"unsafe")
    while message := channel.recv(_MOST_BYTES):
        read, write = os.pipe()
        between = _fork()
        if not between:
            parent = os.getpid()
            forked = _fork()
            if forked:
                os.write(write, str(forked).encode())
                os._exit(0)
            for used in (read, write, channel.detach()):
                os.close(used)
            while os.getppid() == parent:  # a trial ends with its parent, which is to be the process that asked
                time.sleep(0.001)
            return _become(json.loads(message))
        os.waitpid(between, 0)
        channel.send(os.read(read, 16))
        os.close(read)
        os.close(write)
    return None


def _fork() -> int:
    with warnings.catch_warnings():  # threads of a C library, which handles forks itself
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _become(request: dict[str, Any]) -> list[str]:
    os.setsid()
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    for number in (1, 2):
        os.dup2(log, number)
    os.close(log)
    os.environ.clear()
    os.environ.update(request["environment"])
    tempfile.tempdir = None
    words: list[str] = request["words"]
    return words


if __name__ == "__main__":
    import_ahead(json.loads(sys.argv[2]))
    asked = serve(socket.socket(fileno=int(sys.argv[1])))
    if asked is None:
        os._exit(0)
    from collector.launch import main

    sys.exit(main(asked))
