"""Records that are overwritten or half written, and files that are cut off."""

from __future__ import annotations

import os
import struct
from pathlib import Path

from collector.ring.records import RecordWriter
from tests.support.records import open_ring


def test_overwritten_records_are_counted_as_lost(tmp_path: Path) -> None:
    writer = RecordWriter(tmp_path / "ring", fields=1, capacity=4)
    reader = open_ring(tmp_path / "ring")
    for number in range(11):
        writer.append(number)
    assert reader.read().ravel().tolist() == [7, 8, 9, 10]
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


def test_the_order_of_records_is_that_of_their_writing_whatever_they_hold(tmp_path: Path) -> None:
    writer = RecordWriter(tmp_path / "ring", fields=1, capacity=4)
    for number in range(11):
        writer.append(-number)
    reader = open_ring(tmp_path / "ring")
    assert reader.read().ravel().tolist() == [-7, -8, -9, -10]


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
