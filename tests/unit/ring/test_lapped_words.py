"""A reader of the word log that comes too late: lapped by the writer, or in the place of another reader."""

from __future__ import annotations

from pathlib import Path

import pytest

from collector.ring.words import WordLog, WordReader
from tests.support.words import read, write


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
