"""Time from starting `stepscope serve` to its first answer: `python benchmarks/server_start.py BASE_DIR [PATH]
[repeats]`.

Prints the time from the start of the process until the port was open, and until the whole first page had come, in ms.
"""

from __future__ import annotations

import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
MARK_MS = 1500.0


def find_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def measure_start(base_dir: Path, path: str) -> tuple[float, float]:
    """Return ms until the port was open and until the page had come."""
    port = find_port()
    command = [sys.executable, "-m", "profiler_server.cli", "--summary-base-dir", str(base_dir), "--port", str(port)]
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        opened = wait_for_port(port, start)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
            answer.read()
        return opened, 1e3 * (time.perf_counter() - start)
    finally:
        process.terminate()
        process.wait(10)


def wait_for_port(port: int, start: float) -> float:
    while time.perf_counter() - start < 30:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return 1e3 * (time.perf_counter() - start)
        time.sleep(0.005)
    raise TimeoutError("the server did not open its port within 30 s")


def main() -> None:
    base_dir = Path(sys.argv[1])
    path = sys.argv[2] if len(sys.argv) > 2 else "/"
    repeats = int(sys.argv[3]) if len(sys.argv) > 3 else 7
    measured = [measure_start(base_dir, path) for _ in range(repeats)]
    opened, answered = (statistics.median(times) for times in zip(*measured, strict=True))
    slowest = max(times[1] for times in measured)
    print(f"port open {opened:.0f} ms, first page of {path} {answered:.0f} ms (slowest of {repeats}: {slowest:.0f} ms)")
    print(f"the mark is {MARK_MS:.0f} ms: {'met' if slowest < MARK_MS else 'missed'}")


if __name__ == "__main__":
    main()
