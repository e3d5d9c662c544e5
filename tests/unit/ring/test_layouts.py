"""What lies where in the files of the rings: a log is recovered by whichever version finds it."""

from __future__ import annotations

import os
import struct
import time
from pathlib import Path

import numpy as np
import pytest

from collector.ring.records import RecordWriter, open_reader
from collector.ring.words import (
    DEFAULT_CAPACITY,
    FIRST_PIECE,
    HEADER_BYTES,
    NOTHING,
    ORDER_SLOT,
    WordLog,
    WordReader,
    is_finished,
)
from tests.support.records import open_ring

WORD_MAGIC, RECORD_MAGIC = 0x53535752, 0x535452454331
SLOTS = {"head": 4, "order": 5, "finished": 6, "steps": 7}


def read_numbers(path: Path, first: int, count: int) -> list[int]:
    return list(struct.unpack_from(f"<{count}q", path.read_bytes(), first))


def test_the_header_of_a_word_log_lies_where_older_versions_have_it(tmp_path: Path) -> None:
    before = time.perf_counter_ns()
    log = WordLog(tmp_path / "log", 64)
    log.write(3 << 56, 5)
    log.mark_head(9)
    log.header[ORDER_SLOT] = -1
    assert not is_finished(log.path)
    log.header[ORDER_SLOT] = 0
    log.finish()
    magic, capacity, pid, started_ns, *slots = read_numbers(log.path, 0, 8)
    assert (magic, capacity, pid) == (WORD_MAGIC, 64, os.getpid())
    assert before <= started_ns <= time.perf_counter_ns()
    assert dict(zip(SLOTS, slots, strict=True)) == {"head": 2, "order": 0, "finished": 1, "steps": 9}
    assert is_finished(log.path)
    assert (ORDER_SLOT, HEADER_BYTES) == (5, 4096)
    assert log.path.stat().st_size == 4096 + 64 * 8
    assert log.path.stat().st_mode & 0o777 == 0o600


def test_words_follow_the_header_with_their_code_in_the_highest_byte(tmp_path: Path) -> None:
    log = WordLog(tmp_path / "log", 64)
    log.write(3 << 56, 5)
    log.write(4 << 56, (1 << 56) - 1)
    log.write(2 << 56, 1 << 56 | 8)  # what does not fit into the payload is cut off
    log.mark_head(0)
    expected = [0, 3 << 56 | 5, (4 << 56) + (1 << 56) - 1, 2 << 56 | 8, NOTHING << 56]
    assert read_numbers(log.path, 4096, 5) == expected
    assert (NOTHING, DEFAULT_CAPACITY, FIRST_PIECE) == (127, 1_048_576, 4096)


def test_a_log_in_memory_is_saved_whole(tmp_path: Path) -> None:
    log = WordLog(tmp_path / "log", 64, shared=True)
    if not log.is_shared:
        pytest.skip("no shared memory here")
    log.write(3 << 56, 5)
    assert log.path.stat().st_size == 4096 + 64 * 8
    assert read_numbers(log.path, 0, 2) == [WORD_MAGIC, 64]
    assert read_numbers(log.path, 4096, 2) == [0, 0]
    log.save()
    assert read_numbers(log.path, 4096, 2) == [0, 3 << 56 | 5]
    log.close()
    assert log.share() is None


def read_copy(path: Path) -> list[int]:
    return [word >> 56 and word & 0xFF for word in read_numbers(path, 4096, 16)]


def test_what_is_read_from_memory_is_copied_to_its_place_and_cleared_when_it_is_released(tmp_path: Path) -> None:
    log = WordLog(tmp_path / "log", 16)
    copy = tmp_path / "copy"
    copy.write_bytes(bytes(4096 + 16 * 8))
    reader = WordReader(log.path, copy=copy)
    for payload in range(1, 13):
        log.write(1 << 56, payload)
    reader.read()
    assert read_copy(copy) == [0, *range(1, 13), 0, 0, 0]
    assert read_numbers(copy, 0, 2) == [WORD_MAGIC, 16]
    reader.release(11)
    assert read_copy(copy) == [0] * 11 + [11, 12, 0, 0, 0]
    for payload in range(13, 19):
        log.write(1 << 56, payload)
    reader.read()
    assert read_copy(copy) == [16, 17, 18, *[0] * 8, 11, 12, 13, 14, 15]
    reader.release(18)
    assert read_copy(copy) == [0, 0, 18, *[0] * 13]
    assert read_numbers(log.path, 4096, 16) == read_numbers(copy, 4096, 16)


def test_a_lapped_log_is_cleared_in_its_copy_too(tmp_path: Path) -> None:
    log = WordLog(tmp_path / "log", 16)
    copy = tmp_path / "copy"
    copy.write_bytes(bytes(4096 + 16 * 8))
    reader = WordReader(log.path, copy=copy)
    for payload in range(1, 21):
        log.write(1 << 56, payload)
    log.mark_head(0)
    # The head is at 21; of 16 slots one is the margin, so that words 7 to 21 are known to be whole.
    assert (reader.read() & 0xFF).tolist() == [*range(7, 21), 0]
    assert reader.lost == 6
    assert reader.position == 22
    # Word 7 stands in slot 7, word 17 in slot 1.
    assert read_copy(copy) == [16, 17, 18, 19, 20, 0, 0, *range(7, 16)]


@pytest.mark.parametrize(("magic", "size"), [(WORD_MAGIC, 4096 + 63 * 8), (WORD_MAGIC + 1, 4096 + 64 * 8)])
def test_a_log_that_is_short_or_of_another_kind_is_refused(tmp_path: Path, magic: int, size: int) -> None:
    (tmp_path / "log").write_bytes(struct.pack("<2q", magic, 64) + bytes(size - 16))
    with pytest.raises(ValueError, match="is no word log"):
        WordReader(tmp_path / "log")


def test_the_file_of_records_lies_as_older_versions_have_it(tmp_path: Path) -> None:
    path = tmp_path / "ring"
    before = time.perf_counter_ns()
    writer = RecordWriter(path, fields=2, capacity=3, meta=range(40, 58))
    writer.append(10, 11)
    writer.append(20, 21)
    magic, words, capacity, pid, started_ns, unused, closed = read_numbers(path, 0, 7)
    assert (magic, words, capacity, pid, unused, closed) == (RECORD_MAGIC, 4, 3, os.getpid(), 0, 0)
    assert before <= started_ns <= time.perf_counter_ns()
    assert read_numbers(path, 64, 17) == [*range(40, 56), 0]
    assert read_numbers(path, 4096, 12) == [1, 10, 11, 1, 2, 20, 21, 2, 0, 0, 0, 0]
    assert path.stat().st_size == 4096 + 3 * 4 * 8
    assert path.stat().st_mode & 0o777 == 0o600
    writer.close()
    assert read_numbers(path, 48, 1) == [1]
    reader = open_ring(path)
    assert (reader.fields, reader.started_ns, reader.pid, reader.closed) == (2, started_ns, os.getpid(), True)
    assert reader.meta == (*range(40, 56),)


@pytest.mark.parametrize(
    ("header", "size", "is_ring"),
    [
        ((RECORD_MAGIC, 3, 2), 4096 + 3 * 2 * 8, True),
        ((RECORD_MAGIC, 3, 2), 4096 + 3 * 2 * 8 - 1, False),
        ((RECORD_MAGIC + 1, 3, 2), 4096 + 3 * 2 * 8, False),
        ((RECORD_MAGIC, 2, 2), 4096 + 2 * 2 * 8, False),
        ((RECORD_MAGIC, 3, 1), 4096 + 3 * 8, True),
        ((RECORD_MAGIC, 3, 0), 4096, False),
    ],
)
def test_a_ring_is_told_by_its_header_and_its_size(
    tmp_path: Path, header: tuple[int, ...], size: int, is_ring: bool
) -> None:
    (tmp_path / "ring").write_bytes(struct.pack("<3q", *header) + bytes(size - 24))
    assert (open_reader(tmp_path / "ring") is not None) == is_ring


def test_a_ring_is_read_on_from_a_position(tmp_path: Path) -> None:
    writer = RecordWriter(tmp_path / "ring", fields=1, capacity=4)
    for number in range(6):
        writer.append(number)
    reader = open_reader(tmp_path / "ring", 4)
    assert reader is not None
    assert reader.read().tolist() == [[4], [5]]
    assert (reader.lost, reader.position) == (0, 6)
    assert np.array_equal(reader.read(), np.empty((0, 1)))
