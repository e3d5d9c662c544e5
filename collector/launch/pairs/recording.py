"""One run of a pair: a process of its own, its log, and what it came to."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from collector.format.schema.errors import RunError

LOG_FILE = "log.txt"
LOG_LINES = 20
PATIENCE_S = 10.0
"""How long a script that is to end gets for it, before it is asked less kindly."""


class Failed(Exception):
    """The pairs cannot be judged; the text says why."""


@dataclass(frozen=True)
class Measured:
    """What a run recorded: its steps, and their median."""

    steps: int
    median_ns: float
    noun: str


def record_run(name: str, words: Sequence[str], environment: Mapping[str, str], folder: Path) -> Measured:
    """Record one run to `folder`; what it prints goes to a file there.

    Raises Failed if it does not end well, with the end of what it printed. Nothing of such a run is left.
    """
    folder.mkdir(parents=True)
    command = [sys.executable, "-m", "collector.launch", f"--output={folder}", *words]
    try:
        code = _run(command, environment, folder / LOG_FILE)
        if code:
            tail = "\n".join(_read_tail(folder / LOG_FILE))
            how = f"exit code {code}" if code > 0 else f"ended by signal {-code}"
            raise Failed(f"the script failed as {name} ({how}); the end of what it printed:\n{tail}")
        return measure_run(folder)
    except BaseException:
        _remove(folder)
        raise


def measure_run(folder: Path) -> Measured:
    """Return what a run recorded. Raises Failed if that is no step."""
    from collector.format.evaluation import read_step_rows
    from collector.format.run import open_run
    from collector.format.steps import summarize_steps

    try:
        rows = read_step_rows(open_run(folder).rank())
    except RunError as error:
        raise Failed(
            f"{folder.name} recorded nothing that can be compared: {error}. A script that makes a Profiler of its own must "
            "leave its path to profiler-run: Profiler()"
        ) from None
    found = summarize_steps(rows.steps)
    if found.duration_ns is None:
        raise Failed(f"{folder.name} recorded no step")
    return Measured(found.count, found.duration_ns.p50, rows.noun)


def _run(command: Sequence[str], environment: Mapping[str, str], log: Path) -> int:
    with open(log, "wb") as file:
        # In a session of its own, so that a Ctrl-C comes from here, once, and whatever it started can be ended.
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=environment, start_new_session=True
        )
    try:
        return process.wait()
    except BaseException as error:
        _end(process, signal.SIGINT if isinstance(error, KeyboardInterrupt) else signal.SIGTERM)
        raise


def _end(process: subprocess.Popen[bytes], first: signal.Signals) -> None:
    """End a process: as the user asked, then with all of its group."""
    process.send_signal(first)
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            process.wait(PATIENCE_S)
            break
        except subprocess.TimeoutExpired:
            with suppress(OSError):
                os.killpg(process.pid, number)
    process.wait()
    with suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)  # what outlived it, such as workers


def _remove(folder: Path) -> None:
    """Remove what a run left, also where its recorder process still writes the last of it."""
    deadline = time.monotonic() + PATIENCE_S
    while folder.exists() and time.monotonic() < deadline:
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(0.05)


def _read_tail(log: Path) -> list[str]:
    text = log.read_bytes()[-20_000:].decode("utf-8", "replace")
    lines = [line for line in text.splitlines() if line.strip()]
    return ["  " + "".join(letter if letter.isprintable() else "?" for letter in line) for line in lines[-LOG_LINES:]]
