"""The record ring: what is written is read, once, whole, also after the writer was killed or the file was cut off."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from collector.ring.records import RecordWriter, open_reader
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


def test_overwritten_records_are_counted_as_lost(tmp_path: Path) -> None:
    writer = RecordWriter(tmp_path / "ring", fields=1, capacity=4)
    reader = open_ring(tmp_path / "ring")
    for number in range(11):
        writer.append(-number)
    assert reader.read().ravel().tolist() == [-7, -8, -9, -10]
    assert reader.lost == 7


def test_a_torn_record_is_lost_not_returned(tmp_path: Path) -> None:
    path = tmp_path / "ring"
    writer = RecordWriter(path, fields=1, capacity=4)
    for number in range(3):
        writer.append(number)
    with path.open("r+b") as file:
        file.seek(4096 + 1 * 3 * 8)
        file.write(struct.pack("<q", 99))
    reader = open_ring(path)
    assert reader.read().ravel().tolist() == [0, 2]
    assert reader.lost == 1


def test_a_record_that_is_being_written_is_lost_only_once_a_later_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "ring"
    writer = RecordWriter(path, fields=1, capacity=4)
    writer.append(0)
    writer.append(1)
    last_word_at = 4096 + 2 * 3 * 8 - 8
    with path.open("r+b") as file:
        file.seek(last_word_at)
        file.write(struct.pack("<q", 0))
    reader = open_ring(path)
    assert reader.read().ravel().tolist() == [0]
    assert (reader.position, reader.lost) == (1, 0)
    writer.append(2)
    assert reader.read().ravel().tolist() == [2]
    assert (reader.position, reader.lost) == (3, 1)


def test_a_file_that_is_cut_off_ends_neither_the_writer_nor_the_reader(tmp_path: Path) -> None:
    writer = RecordWriter(tmp_path / "ring", fields=1, capacity=64)
    reader = open_ring(tmp_path / "ring")
    writer.append(1)
    os.truncate(tmp_path / "ring", 0)
    assert reader.read().tolist() == []
    assert not reader.closed
    writer.append(2)
    writer.append(3)
    assert reader.read().ravel().tolist() == [2, 3]
    assert reader.lost == 1


def test_a_ring_works_and_gives_its_descriptors_back_where_there_is_no_standard_input(tmp_path: Path) -> None:
    kept = os.dup(0)
    os.close(0)
    try:
        before = len(os.listdir("/proc/self/fd"))
        writer = RecordWriter(tmp_path / "ring", fields=1, capacity=4)
        writer.append(5)
        reader = open_ring(tmp_path / "ring")
        assert reader.read().tolist() == [[5]]
        writer.close()
        unclosed = RecordWriter(tmp_path / "another", fields=1, capacity=4)
        del reader, unclosed
        assert len(os.listdir("/proc/self/fd")) == before
    finally:
        os.dup2(kept, 0)
        os.close(kept)


def test_a_pipe_is_no_ring_and_holds_nobody(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "ring")
    assert open_reader(tmp_path / "ring") is None


@pytest.mark.parametrize(
    "content", [b"", b"x" * 100, b"\0" * 8192, struct.pack("<7q", 0x535452454331, 3, 9, 1, 1, 0, 0)]
)
def test_what_is_no_ring_opens_as_none(tmp_path: Path, content: bytes) -> None:
    assert open_reader(tmp_path / "ring") is None  # there is nothing yet
    (tmp_path / "ring").write_bytes(content)
    assert open_reader(tmp_path / "ring") is None


def test_no_room_is_an_error_at_creation_and_leaves_no_file(tmp_path: Path) -> None:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, hard))
    try:
        with pytest.raises(OSError, match=r"."):
            RecordWriter(tmp_path / "ring", fields=16, capacity=4096)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert not (tmp_path / "ring").exists()


@pytest.mark.parametrize("fields", [1, 998])
def test_the_room_is_taken_at_creation_where_no_call_reserves_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fields: int
) -> None:
    monkeypatch.delattr(os, "posix_fallocate", raising=False)
    RecordWriter(tmp_path / "ring", fields=fields, capacity=20)
    status = (tmp_path / "ring").stat()
    assert status.st_size == 4096 + 20 * (fields + 2) * 8
    assert status.st_blocks * 512 >= status.st_size


def test_a_record_after_close_is_dropped_and_the_descriptor_is_given_back(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    writer = RecordWriter(tmp_path / "ring", fields=1, capacity=4)
    writer.close()
    writer.close()
    writer.append(1)
    assert len(os.listdir("/proc/self/fd")) == before
    assert open_ring(tmp_path / "ring").read().tolist() == []
