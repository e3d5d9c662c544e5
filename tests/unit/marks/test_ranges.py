"""Ranges as a script marks them: nested, dropped, failed, in masses, in threads and processes, and refused where unbalanced."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import coroutine
from typing import Any

import pytest
import torch

import collector
from collector.format.schema.errors import RangeError, RunError
from collector.marks import ranges
from tests.support.marked import record_ranges
from tests.support.recording import record as record_loop
from tests.support.scripts import run_script
from tests.support.waiting import wait_for


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


def test_what_is_marked_while_paused_or_after_the_run_is_absent(tmp_path: Path) -> None:
    profiler = collector.Profiler(tmp_path, window=None)
    with collector.record("seen"):
        pass
    profiler.pause()
    with collector.record("paused"):
        collector.push_range("paused too")
        profiler.resume()
        collector.pop_range()
    run = profiler.analyse()
    with collector.record("late"):
        collector.push_range("late")
        collector.pop_range()
        collector.pop_range()  # while nothing is recorded, nothing is refused
    assert run.frame("ranges").path.tolist() == ["seen"]
    assert list((tmp_path / "profiler/rank_0/events").glob("marks-*")) == []


def test_many_names_and_many_ranges_keep_their_names(tmp_path: Path) -> None:
    def loop() -> None:
        for _ in range(40_000):  # more than the log holds: the oldest are lost, and counted
            with collector.record("often"):
                pass

    run = record_loop(tmp_path, loop).run
    assert set(run.frame("ranges").name) == {"often"}
    assert run.rank().manifest.events_lost > 0


def test_marks_cost_next_to_nothing_while_nothing_is_recorded() -> None:
    count = 20_000
    best = min(time_marks(count) for _ in range(5))
    assert best / count < 2_000  # ns of a processor for a pair; about 230 on a quiet machine


def time_marks(count: int) -> int:
    start = time.thread_time_ns()
    for _ in range(count):
        collector.push_range("a")
        collector.pop_range()
    return time.thread_time_ns() - start


def test_a_push_that_is_never_popped_is_kept_and_warned_of(tmp_path: Path) -> None:
    def loop() -> None:
        with collector.record("whole"):
            collector.push_range("closed")
            collector.pop_range()
        collector.push_range("outer")
        collector.push_range("inner")

    run = record_loop(tmp_path, loop).run
    rows = {row["name"]: row for row in run.table("ranges").to_pylist()}
    assert {name: row["left_open"] for name, row in rows.items()} == {
        "whole": False,
        "closed": False,
        "outer": True,
        "inner": True,
    }
    assert rows["inner"]["parent"] == rows["outer"]["id"]
    assert rows["inner"]["duration_ns"] <= rows["outer"]["duration_ns"]
    (warning,) = [entry for entry in run.rank().manifest.warnings if entry.code == "ranges_left_open"]
    assert "never popped: 2, the first is 'outer'" in warning.text
    for _ in range(2):
        collector.pop_range()  # this thread goes on with other tests


def test_each_thread_has_its_own_stack(tmp_path: Path) -> None:
    together = threading.Barrier(2)

    def work(name: str) -> None:
        with collector.record(name):
            together.wait()
            with collector.record("inner"):
                together.wait()

    def loop() -> None:
        threads = [threading.Thread(target=work, args=(name,)) for name in ("a", "b")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    rows = record_ranges(tmp_path, loop)
    assert sorted(rows.path) == ["a", "a/inner", "b", "b/inner"]
    assert rows.thread_id.nunique() == 2


def make_process(method: str) -> Any:
    context: Any = multiprocessing.get_context(method)
    return context.Process


def mark_in_child(name: str) -> None:
    with collector.record(name), collector.record("inner"):
        time.sleep(0.001)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_children_mark_in_the_run_of_their_parent(tmp_path: Path, method: str) -> None:
    def loop() -> None:
        with collector.record("parent"):
            child = make_process(method)(target=mark_in_child, args=("child",))
            child.start()
            child.join()
            assert child.exitcode == 0

    rows = record_ranges(tmp_path, loop)
    assert sorted(rows.path) == ["child", "child/inner", "parent"]
    assert rows.id.is_unique
    assert rows.set_index("path").process["parent"] == os.getpid() != rows.set_index("path").process["child"]


def test_what_a_killed_process_marked_is_kept(tmp_path: Path) -> None:
    script = """
        import os, signal, time, collector
        profiler = collector.Profiler("run", window=None)
        with collector.record("outer"):
            for number in range(1000):
                with collector.record("inner"):
                    pass
            os.kill(os.getpid(), signal.SIGKILL)
    """
    run_script(tmp_path, script, expected=-9)
    wait_for(lambda: has_ended(tmp_path / "run"))
    run = collector.open_run(tmp_path / "run")
    assert run.frame("ranges").path.value_counts().to_dict() == {"outer/inner": 1000}


def has_ended(path: Path) -> bool:
    try:
        return collector.open_run(path).rank().manifest.ended_unix_ns is not None
    except RunError:  # the recorder has hardly begun
        return False


@pytest.mark.parametrize("is_recorded", [False, True])
def test_callbacks_that_begin_the_next_collect_no_ranges(tmp_path: Path, is_recorded: bool) -> None:
    depths: list[int] = []

    def tick(loop: asyncio.AbstractEventLoop) -> None:
        with collector.record("tick"):
            depths.append(len(ranges._stack.get()))
            collector.push_range("pushed")
            loop.call_soon(tick, loop) if len(depths) < 9 else loop.stop()
            collector.pop_range()

    def work() -> None:
        loop = asyncio.new_event_loop()
        loop.call_soon(tick, loop)
        loop.run_forever()
        loop.close()

    if is_recorded:
        assert len(record_ranges(tmp_path, work)) == 18
    else:
        work()
    assert max(depths) <= 3


def test_a_range_that_a_task_has_pushed_can_be_popped_on_its_thread_and_closes_once(tmp_path: Path) -> None:
    async def push() -> None:
        collector.push_range("epoch")

    async def pop() -> None:
        collector.pop_range()

    def loop() -> None:
        asyncio.run(push())
        collector.pop_range()
        collector.push_range("twice")
        asyncio.run(pop())
        collector.pop_range()

    assert record_ranges(tmp_path, loop).path.tolist() == ["epoch", "twice"]


def test_ranges_before_a_training_carry_no_numbers_of_calls(tmp_path: Path) -> None:
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)

    def loop() -> None:
        with torch.no_grad():
            for _ in range(12):
                model(torch.ones(4, 8))
        for _ in range(6):
            with collector.record("make"):
                batch = torch.ones(4, 8)
            model(batch).sum().backward()
            with collector.record("update"):
                optimizer.step()
            optimizer.zero_grad()

    rows = record_ranges(tmp_path, loop)
    assert rows.name.tolist() == ["make", "update"] * 6
    assert rows.step.max() == 6
    assert rows.step.is_monotonic_increasing
