"""A ring of records that is there."""

from __future__ import annotations

from pathlib import Path

from collector.ring.records import RecordReader, open_reader


def open_ring(path: Path) -> RecordReader:
    reader = open_reader(path)
    assert reader is not None
    return reader
