"""Record a long run: write the words of many steps straight into the log, with a real recorder process beside it.

    python benchmarks/long_run.py [--steps 1_000_000] [--step-us 0]

The words are those of a loop with a loader, a forward, a backward and an update, with times that vary by a tenth.
Without `--step-us` the words come as fast as the recorder takes them, which gives its processor time per step. With
`--step-us` they come at the pace of a training with such steps, which gives the recorder's share of a core.

Prints disk, files and the recorder's memory on the way, then its processor time and the number of lost events.
"""

from __future__ import annotations

import argparse
import gc
import struct
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil

from collector.format.run import Run
from collector.options import parse_options
from collector.ring import codes
from collector.ring.words import WordLog
from collector.session.recording import Recording

CHUNK = 5_000
# What a step writes: the code, and for a timed word how many ns after the one before.
STEP = (
    (codes.FETCH_START, 8_000),
    (codes.FETCH_END, 30_000),
    (codes.ZERO_START, 5_000),
    (codes.ZERO_END, 10_000),
    (codes.FORWARD_START, 4_000),
    (codes.FORWARD_END, 500_000),
    (codes.BACKWARD_START, 20_000),
    (codes.BACKWARD_END, 1_000_000),
    (codes.UPDATE_START, 5_000),
    (codes.UPDATE_END, 400_000),
)


def list_words(first: int, steps: int, start_ns: int, scale: float) -> tuple[list[list[int]], int]:
    """Return the words of each step, from step `first` on, and the time after the last step, ns."""
    noise = np.random.default_rng(first).lognormal(0.0, 0.1, (steps, len(STEP)))
    lengths = (noise * scale * np.array([length for _, length in STEP])).astype(np.int64)
    times = start_ns + np.cumsum(lengths.ravel()).reshape(lengths.shape)
    words = times + np.array([code for code, _ in STEP])
    rows = []
    for step, timed in enumerate(words.tolist(), first):
        queue = codes.QUEUE + (1 << 48 | 4 << 24 | step % 5 << 12)
        ends = [codes.STEP_ENDS_NEXT + step - 1] if step > 1 else []
        before = [*ends, codes.LOADER + (1 << 16), queue, timed[0], codes.BATCH + step]
        rows.append([*before, timed[1], codes.SAMPLES + 16, *timed[2:]])
    return rows, int(times[-1, -1])


def write_steps(log: WordLog, rows: list[list[int]], pace_ns: int) -> None:
    words, mask, following, start = log.words, log.mask, log.following, time.perf_counter_ns()
    for step, row in enumerate(rows):
        for word in row:
            words[following() & mask] = word
        log.mark_head(step + 1)
        while pace_ns and time.perf_counter_ns() - start < step * pace_ns:
            time.sleep(pace_ns * 20 / 1e9)


def wait_for_room(log: WordLog) -> None:
    """Wait until the recorder has freed the word a quarter of the log ahead."""
    head = struct.unpack_from("<q", log.header, 4 * 8)[0]
    while log.words[(head + log.capacity // 4) & log.mask]:
        time.sleep(0.05)


def watch(recording: Recording, steps: int, step_us: int) -> Iterator[str]:
    sidecar = psutil.Process(recording._sidecar.pid) if recording._sidecar else psutil.Process()
    recording.resume()
    at, began, idle = time.perf_counter_ns(), time.perf_counter(), sidecar.cpu_times()
    for first in range(1, steps + 1, CHUNK):
        rows, at = list_words(first, min(CHUNK, steps + 1 - first), at, (step_us or 2000) / 1982)
        write_steps(recording.log, rows, step_us * 1000)
        wait_for_room(recording.log)
        if (first - 1) % max(steps // 10 // CHUNK * CHUNK, CHUNK) == 0:
            yield f"{first + len(rows) - 1:>12,} {describe_disk(recording)} {sidecar.memory_info().rss / 1e6:>9.0f} MB"
    used, elapsed = sidecar.cpu_times(), time.perf_counter() - began
    spent = used.user + used.system - idle.user - idle.system
    yield f"recorder: {spent / steps * 1e6:.1f} µs a step, {spent / elapsed:.2%} of a core over {elapsed:.0f} s"


def describe_disk(recording: Recording) -> str:
    files = [path for path in recording.place.rank_folder.rglob("*") if path.is_file() and "events" not in path.parts]
    return f"{sum(path.stat().st_size for path in files) / 1e6:>9.1f} MB {len(files):>6}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--step-us", type=int, default=0)
    given = parser.parse_args()
    gc.disable()  # collections of this process are no collections of the training that it plays
    with tempfile.TemporaryDirectory() as folder:
        recording = Recording(Path(folder) / "run", parse_options({"window": None}))
        print(f"{'steps':>12} {'disk':>12} {'files':>6} {'recorder':>12}")
        for line in watch(recording, given.steps, given.step_us):
            print(line, flush=True)
        before = time.perf_counter()
        recording.finish()
        rank = Run(Path(folder) / "run").rank(0)
        print(f"at the end: {describe_disk(recording)} files, {rank.count_rows('steps'):,} rows of steps,")
        print(f"{rank.manifest.events_lost:,} events lost, made one file each in {time.perf_counter() - before:.1f} s")


if __name__ == "__main__":
    main()
