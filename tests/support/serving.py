"""A real server process on a free loopback port."""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

START_LIMIT_S = 120.0


@contextmanager
def serve(base_dir: Path) -> Iterator[str]:
    """Run `profiler-server` on base_dir and yield its address, without a slash at the end."""
    command = [sys.executable, "-m", "profiler_server.cli", "--summary-base-dir", str(base_dir), "--port", "0"]
    log = base_dir / ".server.log"
    with log.open("wb") as sink:
        process = subprocess.Popen(command, stdout=sink, stderr=subprocess.STDOUT)
    try:
        yield _wait_for_address(process, log)
    finally:
        process.terminate()
        process.wait(60)


def _wait_for_address(process: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline:
        text = log.read_text(encoding="utf-8", errors="replace")
        address = next((word.rstrip("/.") for word in text.split() if word.startswith("http://127.0.0.1:")), None)
        if address and _answers(address):
            return address
        if process.poll() is not None:
            raise AssertionError(f"the server ended with {process.returncode}: {text}")
        time.sleep(0.05)
    raise AssertionError(f"the server printed no address in {START_LIMIT_S} s: {log.read_text(errors='replace')}")


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
