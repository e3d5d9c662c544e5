"""The word log: what was written is read once, in order; what was overwritten is counted."""

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


def test_a_file_that_is_no_word_log_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(bytes(8192))
    with pytest.raises(ValueError, match="is no word log"):
        WordReader(tmp_path / "other")


def test_a_capacity_that_cannot_wrap_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="power of two"):
        WordLog(tmp_path / "log", 100)
