"""Run a script as several ranks of one launch, on this machine and over gloo."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

from tests.support.forking import ROOT, Forked


def find_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def meet(ranks: int) -> dict[str, str]:
    """Return the environment of a rank of a launch on this machine, all but its number."""
    common = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(find_port())}
    return {**os.environ, **common, "PYTHONPATH": str(ROOT)}


def launch(script: str, path: Path, ranks: int = 2) -> None:
    """Run the script once per rank with the path as its argument. AssertionError with what a failed one printed."""
    environment = meet(ranks)
    processes = [
        Forked(
            [sys.executable, "-c", script, str(path)],
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**environment, "RANK": str(rank)},
        )
        for rank in range(ranks)
    ]
    for process in processes:
        errors = process.communicate(timeout=300)[1]
        assert process.returncode == 0, errors
