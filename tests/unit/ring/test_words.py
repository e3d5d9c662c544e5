"""The word log: what was written is read once, in order; what was overwritten or comes too late is counted."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from collector.ring.words import WordLog, WordReader
from tests.support.words import read, write


def test_words_are_read_once_and_in_order(tmp_path: Path) -> None:
    log = WordLog(tmp_path / "log", 64)
    reader = WordReader(log.path)
    write(log, range(1, 11))
    assert read(reader) == list(range(1, 11))
    assert read(reader) == []
    write(log, range(11, 14))
    assert read(reader) == [11, 12, 13]


def test_released_slots_are_used_again_for_ever(tmp_path: Path) -> None:
    log = WordLog(tmp_path / "log", 64)
    reader = WordReader(log.path)
    seen: list[int] = []
    for start in range(1, 1000, 40):
        write(log, range(start, start + 40))
        log.mark_head(0)
        seen += read(reader)
        reader.release(reader.position)
    assert seen == list(range(1, start + 40))
    assert reader.lost == 0


def test_a_forked_child_owns_no_log(tmp_path: Path) -> None:
    log = WordLog(tmp_path / "log", 64)
    assert log.is_mine()
    child = os.fork()
    if not child:
        os._exit(int(log.is_mine()))
    assert os.waitpid(child, 0)[1] == 0
    assert log.is_mine()


def test_a_capacity_that_cannot_wrap_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="power of two"):
        WordLog(tmp_path / "log", 100)


def test_what_was_not_released_is_read_again_by_the_next_reader(tmp_path: Path) -> None:
    log = WordLog(tmp_path / "log", 64)
    write(log, range(1, 21))
    first = WordReader(log.path)
    first.read()
    first.release(11)
    assert read(WordReader(log.path, 11)) == list(range(11, 21))


def test_a_reader_that_was_lapped_keeps_the_newest_words_and_counts_the_others(tmp_path: Path) -> None:
    log = WordLog(tmp_path / "log", 64)
    reader = WordReader(log.path)
    write(log, range(1, 101))
    log.mark_head(0)
    assert read(reader) == list(range(42, 101))
    assert reader.lost == 41
    write(log, range(101, 111))
    assert read(reader) == list(range(101, 111))
    reader.release(reader.position)
    write(log, range(111, 160))
    assert read(reader) == list(range(111, 160))
    assert reader.lost == 41


def test_words_that_were_cleared_unread_are_counted_by_the_reader_that_takes_over(tmp_path: Path) -> None:
    log = WordLog(tmp_path / "log", 64)
    write(log, range(1, 101))
    log.mark_head(7)
    WordReader(log.path).read()
    write(log, range(101, 111))
    log.mark_head(8)
    second = WordReader(log.path, 90)
    assert read(second) == list(range(101, 111))
    assert second.lost == 12
    assert second.steps == 8


def test_words_that_were_not_released_are_not_read_again_when_the_log_is_full(tmp_path: Path) -> None:
    log = WordLog(tmp_path / "log", 64)
    reader = WordReader(log.path)
    write(log, range(1, 61))
    assert read(reader) == list(range(1, 61))
    write(log, range(61, 65))
    assert read(reader) == list(range(61, 65))
    assert read(reader) == []


@pytest.mark.parametrize(
    ("written", "kept_from"), [(238, 1), (239, 1), (240, 2), (241, 3), (242, 4), (255, 17), (258, 20)]
)
def test_a_reader_that_is_less_than_a_sixteenth_from_being_lapped_takes_the_newest_words_only(
    tmp_path: Path, written: int, kept_from: int
) -> None:
    """Of 256 words 240 are known to be whole: the writer may be at work on those after them."""
    log = WordLog(tmp_path / "log", 256)
    reader = WordReader(log.path)
    write(log, range(1, written + 1))
    log.mark_head(0)
    assert read(reader) == list(range(kept_from, written + 1))
    assert reader.lost == kept_from - 1
    # A lapped log is free at once; what was read from one that was not is there until it is released.
    assert (len(WordReader(log.path).read()) == 0) == (written >= 240)


def test_a_reader_that_takes_over_far_behind_takes_what_was_written_after_the_log_was_cleared(tmp_path: Path) -> None:
    log = WordLog(tmp_path / "log", 64)
    write(log, range(1, 101))
    log.mark_head(0)
    WordReader(log.path).read()
    write(log, range(102, 112))
    log.mark_head(0)
    second = WordReader(log.path, 20)
    assert read(second) == list(range(102, 112))
    assert second.lost == 82
    write(log, range(113, 116))
    assert read(second) == [113, 114, 115]


@pytest.mark.parametrize(("position", "lost"), [(90, 12), (101, 1), (102, 0)])
def test_a_reader_that_takes_over_a_log_that_was_cleared_to_its_head_goes_on_behind_it(
    tmp_path: Path, position: int, lost: int
) -> None:
    log = WordLog(tmp_path / "log", 64)
    write(log, range(1, 101))
    log.mark_head(0)
    WordReader(log.path).read()
    second = WordReader(log.path, position)
    assert read(second) == []
    assert (second.lost, second.position) == (lost, 102)
    write(log, range(102, 105))
    assert read(second) == [102, 103, 104]


def test_a_copy_that_cannot_be_written_is_said_once_until_it_can_be_written_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log, copy = WordLog(tmp_path / "log", 64), tmp_path / "copies" / "log"
    reader = WordReader(log.path, copy=copy)

    def read_again() -> int:
        write(log, range(1, 3))
        assert read(reader) == [1, 2]
        return sum("is not written" in record.message for record in caplog.records)

    assert [read_again(), read_again()] == [1, 1]
    copy.parent.mkdir()
    copy.write_bytes(bytes(4096 + 64 * 8))
    assert [read_again(), read_again()] == [1, 1]
    copy.unlink()
    assert [read_again(), read_again()] == [2, 2]


def test_a_copy_is_whole_where_the_disk_takes_a_little_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, copy = WordLog(tmp_path / "log", 16), tmp_path / "copy"
    copy.write_bytes(bytes(4096 + 16 * 8))
    write(log, range(1, 11))
    whole = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, data, offset: whole(file, data[:24], offset))
    WordReader(log.path, copy=copy).read()
    assert copy.read_bytes()[4096:] == log.path.read_bytes()[4096:]
