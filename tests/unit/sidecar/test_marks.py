"""Mark logs to rows: device times that come later, a process that takes over, ranges dropped after they were written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from collector.ring.clock import Clock
from collector.ring.mark_log import (
    DEVICE,
    DEVICE_LATER,
    DROP,
    MOST_NAMES,
    OTHER,
    RANGE,
    DeviceTime,
    Drop,
    MarkLog,
    Range,
)
from collector.sidecar.assemblers.marks import MarkAssembler

CLOCK = Clock(0, 0, 0)


class Rank:
    """A rank folder with one mark log and its assembler."""

    def __init__(self, folder: Path) -> None:
        (folder / "events").mkdir()
        self.folder = folder
        self.log = MarkLog(folder / "events" / "marks-1-1.ring")
        self.assembler = MarkAssembler(folder, CLOCK)

    def close(self, number: int, name: str, parent: int = -1, flags: int = 0) -> None:
        self.log.add(RANGE, Range(number, parent, self.log.name(name), 1, number * 10, 5, -1, -1, -1, flags))

    def poll(self) -> list[dict[str, Any]]:
        tables = self.assembler.poll()
        return tables["ranges"].to_pylist() if tables else []

    def take_over(self) -> None:
        """Go on in another process, as far as the checkpoint tells it."""
        state = json.loads(json.dumps(self.assembler.checkpoint()))
        self.assembler = MarkAssembler(self.folder, CLOCK)
        self.assembler.restore(state)


@pytest.fixture
def rank(tmp_path: Path) -> Rank:
    return Rank(tmp_path)


def test_a_range_waits_for_its_device_time(rank: Rank) -> None:
    rank.close(0, "slow", flags=DEVICE_LATER)
    rank.close(1, "host only")
    assert [(row["name"], row["device_ns"]) for row in rank.poll()] == [("host only", 0)]
    rank.take_over()
    rank.log.add(DEVICE, DeviceTime(0, 1234))
    assert [(row["name"], row["device_ns"]) for row in rank.poll()] == [("slow", 1234)]


def test_a_device_time_that_never_comes_is_unknown(rank: Rank) -> None:
    rank.close(0, "cut off", flags=DEVICE_LATER)
    assert rank.poll() == []
    (row,) = rank.assembler.finish()["ranges"].to_pylist()
    assert row["device_ns"] is None


def test_names_outlive_the_process_that_read_them(rank: Rank) -> None:
    rank.close(0, "first")
    assert len(rank.poll()) == 1
    rank.take_over()
    rank.close(1, "first")
    assert [row["name"] for row in rank.poll()] == ["first"]


def test_what_was_written_before_its_range_was_dropped_goes_in_the_end(rank: Rank) -> None:
    rank.close(2, "innermost", parent=1)
    rank.close(1, "inner", parent=0)
    rank.close(4, "other child", parent=3)
    written = rank.assembler.poll()["ranges"]
    rank.take_over()
    rank.log.add(DROP, Drop(0))
    rank.poll()
    kept = rank.assembler.revise("ranges", written)
    assert kept["name"].to_pylist() == ["other child"]
    assert rank.assembler.revise("stages", written) is written


def test_too_many_names_share_one(rank: Rank) -> None:
    for number in range(MOST_NAMES + 5):
        rank.log.name(f"name {number}")
    rank.close(0, "one more")
    assert [row["name"] for row in rank.poll()] == [OTHER]


def test_a_long_name_is_cut_between_characters(rank: Rank) -> None:
    rank.close(0, "ä" * 200)
    (row,) = rank.poll()
    assert row["name"] == "ä" * 48
