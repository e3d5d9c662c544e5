"""Ranges as a script marks them: nested, dropped, failed, in threads and processes, and refused where unbalanced."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from types import coroutine

import pytest

import collector
from collector.format.schema.errors import RangeError
from tests.support.marked import record_ranges


def test_ranges_nest_on_each_path(tmp_path: Path) -> None:
    def loop() -> None:
        with collector.record("epoch"):
            for number in range(2):
                collector.push_range("batch", batch_idx=number)
                with collector.record("augment"):
                    time.sleep(0.002)
                collector.pop_range(total_items=8)

    rows = record_ranges(tmp_path, loop).sort_values("id")
    assert rows.path.tolist() == ["epoch", *["epoch/batch", "epoch/batch/augment"] * 2]
    assert rows.parent.fillna(-1).tolist() == [-1, 0, 1, 0, 3]
    assert rows.batch.dropna().tolist() == [0, 1]
    assert rows.total_items.dropna().tolist() == [8, 8]
    epoch, first = rows.iloc[0], rows.iloc[1]
    assert epoch.duration_ns >= first.duration_ns >= 2_000_000
    assert rows.device_ns.tolist() == [0] * 5  # nothing ran on a device


def fail_inside() -> None:
    with collector.record("outer"), collector.record("inner"):
        collector.push_range("left open")
        _ = 1 / 0


def test_an_exception_closes_the_range_as_failed(tmp_path: Path) -> None:
    def loop() -> None:
        with pytest.raises(ZeroDivisionError):
            fail_inside()
        with collector.record("after"):
            pass

    rows = record_ranges(tmp_path, loop).sort_values("id")
    assert rows.path.tolist() == ["outer", "outer/inner", "outer/inner/left open", "after"]
    assert rows.failed.tolist() == [True, True, True, False]


def test_a_dropped_range_goes_with_its_children_only(tmp_path: Path) -> None:
    def loop() -> None:
        for name, drop in (("op1", True), ("op10", False), ("op1", False)):
            collector.push_range(name)
            with collector.record("inner"), collector.record("innermost"):
                pass
            collector.pop_range(delete_range=drop)

    rows = record_ranges(tmp_path, loop).sort_values("id")
    kept = ["op10", "op10/inner", "op10/inner/innermost", "op1", "op1/inner", "op1/inner/innermost"]
    assert rows.path.tolist() == kept


def test_unbalanced_ranges_are_refused_and_nothing_is_lost(tmp_path: Path) -> None:
    def loop() -> None:
        with pytest.raises(RangeError, match="without a push_range"):
            collector.pop_range()
        with collector.record("block"), pytest.raises(RangeError, match="inside of record"):
            collector.pop_range()
        with pytest.raises(RangeError, match="is open inside of it"), collector.record("block"):
            collector.push_range("left")
        collector.push_range("no batch")
        with pytest.raises(RangeError, match="no batch"):
            collector.pop_range(total_items=4)
        collector.pop_range()
        with pytest.raises(RangeError, match="batch_idx"):
            collector.push_range("batch", batch_idx=-1)

    rows = record_ranges(tmp_path, loop).sort_values("id")
    assert rows.path.tolist() == ["block", "block", "block/left", "no batch"]


@coroutine
def suspend() -> Iterator[None]:
    yield


def test_functions_and_coroutines_can_be_marked(tmp_path: Path) -> None:
    @collector.record("function")
    def add(a: int, b: int) -> int:
        return a + b

    @collector.record("coroutine")
    async def wait() -> int:
        await suspend()
        return 3

    def loop() -> None:
        assert add(1, b=2) == 3
        waiting = wait()
        waiting.send(None)  # an event loop's part; a browser test in this process may have one running
        time.sleep(0.01)
        with pytest.raises(StopIteration, match="3"):
            waiting.send(None)

    rows = record_ranges(tmp_path, loop).set_index("path")
    assert rows.duration_ns["coroutine"] >= 10_000_000 > rows.duration_ns["function"]
