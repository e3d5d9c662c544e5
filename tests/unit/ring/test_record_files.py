"""The file of a ring: what is one, its room, and its descriptor."""

from __future__ import annotations

import os
import signal
import struct
from pathlib import Path

import pytest

from collector.ring.records import RecordWriter, open_reader
from tests.support.records import open_ring


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
    (tmp_path / "ring").write_bytes(content)
    assert open_reader(tmp_path / "ring") is None


def test_a_missing_file_opens_as_none(tmp_path: Path) -> None:
    assert open_reader(tmp_path / "nothing") is None


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
