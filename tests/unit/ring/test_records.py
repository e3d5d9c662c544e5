"""The record ring: what is written is read, once, whole, also after the writer was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from collector.ring.records import META_WORDS, RecordWriter
from tests.support.records import open_ring


def test_records_come_back_in_order_and_once(tmp_path: Path) -> None:
    writer = RecordWriter(tmp_path / "ring", fields=3, capacity=8, meta=(7, -1))
    reader = open_ring(tmp_path / "ring")
    writer.append(1, 2, 3)
    writer.append(4, 5, -6)
    assert reader.read().tolist() == [[1, 2, 3], [4, 5, -6]]
    assert reader.read().tolist() == []
    writer.append(7, 8, 9)
    assert reader.read().tolist() == [[7, 8, 9]]
    assert reader.lost == 0


def test_the_header_carries_pid_and_meta(tmp_path: Path) -> None:
    RecordWriter(tmp_path / "ring", fields=1, capacity=2, meta=(7, -1))
    reader = open_ring(tmp_path / "ring")
    assert (reader.pid, reader.fields) == (os.getpid(), 1)
    assert reader.meta == (7, -1, *[0] * (META_WORDS - 2))


def test_close_is_seen_by_the_reader(tmp_path: Path) -> None:
    writer = RecordWriter(tmp_path / "ring", fields=1, capacity=4)
    reader = open_ring(tmp_path / "ring")
    assert not reader.closed
    writer.close()
    assert reader.closed


def test_records_outlive_a_killed_writer(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from collector.ring.records import RecordWriter\n"
        "w = RecordWriter(Path(sys.argv[1]), fields=2, capacity=64)\n"
        "for i in range(50): w.append(i, -i)\n"
        "print('written', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "ring")], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert open_ring(tmp_path / "ring").read().tolist() == [[i, -i] for i in range(50)]


def test_records_are_read_in_order_however_the_ring_wraps(tmp_path: Path) -> None:
    writer = RecordWriter(tmp_path / "ring", fields=1, capacity=200)
    reader = open_ring(tmp_path / "ring")
    seen: list[int] = []
    for size in (150, 199, 1, 200, 64, 65, 127):
        for number in range(size):
            writer.append(len(seen) + number)
        seen += reader.read().ravel().tolist()
    assert seen == list(range(806))
    assert reader.lost == 0
