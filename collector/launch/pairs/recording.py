"""One run of a pair: a process of its own, its log, and what it came to."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from collector.format.schema.errors import RunError
from collector.format.schema.inside import open_inside
from collector.format.schema.removal import Made, make_run_folder, remove_tree

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
    """Record one run to `folder`, which is there; what it prints goes to a file in it.

    Raises Failed if it does not end well, with the end of what it printed.
    """
    command = [sys.executable, "-m", "collector.launch", f"--output={folder}", *words]
    code = _run(command, environment, folder / LOG_FILE)
    if code:
        tail = "\n".join(_read_tail(folder / LOG_FILE))
        how = f"exit code {code}" if code > 0 else f"ended by signal {-code}"
        raise Failed(f"the script failed as {name} ({how}); the end of what it printed:\n{tail}")
    return measure_run(folder)


@contextmanager
def removed_at_failure(folder: Path) -> Iterator[None]:
    """Make a folder for a run; nothing of it is left if the block raises."""
    made = make_run_folder(folder)
    try:
        yield
    except BaseException:
        _remove(folder, made)
        raise


def measure_run(folder: Path) -> Measured:
    """Return what a run recorded. Raises Failed if that is no step."""
    from collector.format.rank import read_step_rows
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
    with open(log, "wb", opener=open_inside) as file:
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


def _remove(folder: Path, made: Made) -> None:
    """Remove what a run left, also where its recorder process still writes the last of it."""
    deadline = time.monotonic() + PATIENCE_S
    while folder.exists() and time.monotonic() < deadline:
        with suppress(OSError):  # not empty again
            remove_tree(folder, made)
        time.sleep(0.05)


def _read_tail(log: Path) -> list[str]:
    text = log.read_bytes()[-20_000:].decode("utf-8", "replace")
    lines = [line for line in text.splitlines() if line.strip()]
    return ["  " + "".join(letter if letter.isprintable() else "?" for letter in line) for line in lines[-LOG_LINES:]]
