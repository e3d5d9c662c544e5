"""The last lines of a training on the terminal: what bounds it, what to change, and what that gains.

The judging is the server's. It runs in a process of its own, so that a training never loads it, and is not waited for
longer than `PATIENCE_S`: who is told nothing looks at the page.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import shlex
import subprocess
import sys
from pathlib import Path

from collector.expendable import build_environment
from collector.server import SERVER
from collector.session.headroom import measure_headroom

VARIABLE = "PROFILER_VERDICT"
"""`PROFILER_VERDICT=0` switches the lines off."""
PATIENCE_S = 5.0
LEAST_FREE_BYTES = 256 << 20
"""Where less is free, the system might end the training for what the judging takes."""
_log = logging.getLogger("stepscope")


def judge_briefly(run_path: Path, world_size: int = 1) -> list[str]:
    """Return the lines on a run that is complete; none where the server is not installed, fails, or where memory is short.

    Only the command where judging takes too long, and for a job of several ranks: it holds all their devices until its
    last rank has ended, and one rank's tables are no verdict on the others.
    """
    later = f"for the verdict: profiler-server report --brief {shlex.quote(str(run_path))}"
    if (
        os.environ.get(VARIABLE) == "0"
        or importlib.util.find_spec(SERVER) is None
        or measure_headroom() < LEAST_FREE_BYTES
    ):
        return []
    if world_size > 1:
        return [later]
    try:
        done = subprocess.run(
            [sys.executable, "-m", "collector.expendable", SERVER, "report", "--brief", str(run_path)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            cwd="/",  # a file of the user's in the current folder must not shadow a module
            env=build_environment(),
            start_new_session=True,
            timeout=PATIENCE_S,
        )
    except subprocess.TimeoutExpired:
        return [later]
    except (OSError, ValueError) as error:
        _log.debug("stepscope: no verdict at the end: %s", error)
        return []
    lines = done.stdout.decode("utf-8", "replace").splitlines() if done.returncode == 0 else []
    return ["".join(letter if letter.isprintable() else "?" for letter in line) for line in lines]
