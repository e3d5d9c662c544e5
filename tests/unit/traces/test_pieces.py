"""A trace that several processes read in pieces says what it says when one reads it."""

from __future__ import annotations

import errno
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from collector.format import parts
from collector.format.schema.errors import OutputError
from collector.traces import source
from collector.traces.format import ReadOptions
from collector.traces.importing import import_trace, import_traces
from collector.traces.kineto import reader
from collector.traces.kineto.parallel import pool as pools
from collector.traces.kineto.parallel.pool import Piece, Pool, Worker
from collector.traces.reading import read_trace
from collector.traces.workers import Here
from tests.support.pieces import KeptPool, tell
from tests.support.traces import CARRIED, Event, build_trace, training_steps, write_trace

LARGE = 64 << 10
VALUES: tuple[Any, ...] = (-1, 7, "8", "0x9", 1.5, None, 1 << 63, 1 << 80, [1], {}, "a\\b")


@pytest.fixture(scope="module")
def pool() -> Iterator[KeptPool]:
    kept = KeptPool(1)
    yield kept
    kept.close()


def write_long(path: Path, steps: int = 120) -> Path:
    return write_trace(path, training_steps(steps))


@pytest.mark.parametrize("name", sorted(path.name for path in CARRIED.glob("*.json.gz")))
def test_a_real_trace_in_pieces_is_what_it_is_as_a_whole(name: str, pool: KeptPool) -> None:
    path = CARRIED / name
    size = max(path.stat().st_size // 2, LARGE)
    assert tell(path, pool, size) == tell(path, None, size)


@pytest.mark.parametrize("helpers", [0, 2])
def test_pieces_come_back_in_order_whoever_read_them(tmp_path: Path, helpers: int) -> None:
    path = write_long(tmp_path / "t.json")
    assert tell(path, Pool(helpers)) == tell(path, None)


def list_odd() -> dict[str, list[Event]]:
    steps = training_steps(60)
    halves = [{"ph": half, "name": "half", "pid": 1, "tid": 1, "ts": 1000 * at} for at in range(9) for half in "BE"]
    trap = 'x}, {"ph": "X", "name": "no event", "pid": 1}, {'
    deep: Any = []
    for _ in range(600):
        deep = [deep]
    return {
        "slices of two events": [*steps, *halves, *training_steps(90)[400:]],
        "names that look like events": [{**event, "name": trap * (at % 3)} for at, event in enumerate(steps)],
        "arguments within arguments": [
            {**event, "args": {**event.get("args", {}), "inner": {"correlation": 7, "External id": "9"}}}
            for event in steps
        ],
        "ids of all kinds": [
            {**event, "args": {"correlation": value, "Sequence number": value, "External id": 5}}
            for event in training_steps(20)
            for value in VALUES
        ],
        "deep values": [*steps, {**steps[-1], "args": {"deep": deep}}, *training_steps(80)[500:]],
        "a long event": [*steps, {**steps[-1], "args": {"long": "x" * 9000}}, *training_steps(80)[500:]],
        "counters and allocations": [
            *steps,
            *({"ph": "C", "name": "c", "pid": 1, "ts": at, "args": {"a": at, "b": 0.5}} for at in range(300)),
            *(
                {"ph": "i", "name": "[memory]", "pid": 1, "tid": at % 5, "ts": at, "args": {"Bytes": at, "Addr": at}}
                for at in range(300)
            ),
        ],
    }


@pytest.mark.parametrize("case", list_odd())
def test_odd_events_are_told_the_same_in_pieces(tmp_path: Path, pool: KeptPool, case: str) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps(build_trace(list_odd()[case])), encoding="utf-8")
    assert tell(path, pool, 2000) == tell(path, None, 2000)


@pytest.mark.parametrize("when", [0, 3])
def test_a_helper_that_is_killed_costs_nothing_but_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: int
) -> None:
    path = write_long(tmp_path / "t.json")
    asked: list[Piece] = []
    ask = Worker.ask

    def kill(worker: Worker, piece: Piece, frames: int) -> None:
        ask(worker, piece, frames)
        if len(asked) == when:
            os.kill(worker._process.pid, signal.SIGKILL)
        asked.append(piece)

    expected = tell(path, None)
    monkeypatch.setattr(Worker, "ask", kill)
    monkeypatch.setattr(Pool, "__enter__", start_and_wait)
    assert tell(path, Pool(1)) == expected
    assert len(asked) > when


def test_a_helper_that_does_not_answer_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_long(tmp_path / "t.json", 100)
    ask = Worker.ask

    def stop(worker: Worker, piece: Piece, frames: int) -> None:
        os.kill(worker._process.pid, signal.SIGSTOP)
        ask(worker, piece, frames)

    monkeypatch.setattr(Worker, "ask", stop)
    monkeypatch.setattr(Pool, "__enter__", start_and_wait)
    expected = tell(path, None)
    monkeypatch.setattr(pools, "ANSWER_S", 0.2)
    assert tell(path, Pool(1)) == expected


def start_and_wait(pool: Pool) -> Pool:
    """Start a helper and wait until it can be asked, so that it is."""
    pool._workers.append(Worker())
    while pool._workers and not pool._workers[0].is_free:
        pool.take_answers(60)
    return pool


def test_no_helper_is_left_behind_by_an_import_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_long(tmp_path / "t.json")
    before = set(psutil.Process().children())

    def cancel(share: float) -> None:
        if share > 0.5:
            raise KeyboardInterrupt

    monkeypatch.setattr(reader, "HELPED_BYTES", 1)
    monkeypatch.setattr(source, "BLOCK_BYTES", 4096)
    with pytest.raises(KeyboardInterrupt):
        read_trace(path, ReadOptions(on_progress=cancel, helpers=1))
    assert set(psutil.Process().children()) <= before


def test_a_long_trace_is_imported_by_two_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []
    start = Worker.__init__

    def note(worker: Worker) -> None:
        started.append(1)
        start(worker)

    monkeypatch.setattr(Worker, "__init__", note)
    monkeypatch.setattr("collector.traces.workers.count_cores", lambda: 2)
    path = write_long(tmp_path / "t.json", 100)
    alone = import_trace(path, tmp_path / "short").rank(0)
    assert not started
    monkeypatch.setattr(reader, "HELPED_BYTES", 1)
    together = import_trace(path, tmp_path / "long").rank(0)
    assert len(started) == 1
    assert together.table("slices").num_rows == len(training_steps(100))
    for table in ("steps", "phases", "operators", "kernels", "slices", "tracks", "counters", "memory"):
        assert together.table(table).equals(alone.table(table))


def test_a_disk_that_fills_up_while_tables_are_written_together_ends_the_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = parts.write_batches

    def fill(batches: Iterator[Any], table: str, target: Path) -> None:
        if table == "operators":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(batches, table, target)

    monkeypatch.setattr(parts, "write_batches", fill)
    monkeypatch.setattr(reader, "HELPED_BYTES", 1)
    with pytest.raises(OutputError, match="No space left"):
        import_traces([write_long(tmp_path / "t.json", 20)], tmp_path / "run", ReadOptions(), Here(2))
    assert [path.name for path in tmp_path.iterdir()] == ["t.json"]
