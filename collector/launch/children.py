"""Start the recorded processes of benchmarks and pairs, each with its own folder and log."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from collector.format.schema.errors import OutputError
from collector.format.schema.inside import open_inside

LOG_FILE = "log.txt"


def start_recording(
    folder: Path, options: str | None, words: Sequence[str], environment: Mapping[str, str], own_session: bool = False
) -> subprocess.Popen[bytes]:
    """Start `stepscope run` with the arguments `words`; `options` are the Profiler's options as JSON. The run goes to
    the existing `folder`, and what it prints to LOG_FILE there. With `own_session`, the process leads a POSIX session.
    """
    own = [f"--output={folder}", *([] if options is None else [f"--options={options}"])]
    with open(folder / LOG_FILE, "wb", opener=open_inside) as log:
        return subprocess.Popen(
            [sys.executable, "-m", "collector.launch", *own, *words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
            start_new_session=own_session,
        )


def refuse_output(folder: Path, error: OSError) -> OutputError:
    return OutputError(f"{folder} cannot be written ({error.strerror or error}); choose another -o")


def read_log_end(log: Path) -> list[str]:
    """Return the lines in the last 20,000 bytes that a process printed, without empty lines."""
    return [line for line in log.read_bytes()[-20_000:].decode("utf-8", "replace").splitlines() if line.strip()]


def make_printable(line: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in line)
