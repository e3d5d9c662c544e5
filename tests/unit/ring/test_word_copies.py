"""The file that what is read of a log in memory is copied to, on a disk that fails."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from collector.ring.words import WordLog, WordReader
from tests.support.words import read, write


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
