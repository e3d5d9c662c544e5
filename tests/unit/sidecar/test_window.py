"""Windows that lie in `events/` become tables once, with one numbering, also when another process takes over."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from collector.format.schema.layout import events_path
from collector.ring.clock import Clock
from collector.ring.windows import WindowNote, read_window, trace_file, write_window
from collector.sidecar.assemblers import window as module
from collector.sidecar.assemblers.window import WindowAssembler
from tests.support.traces import BASE_US, Event, call, kernel, operator, write_trace

EPOCH_NS = 1_780_000_000_000_000_000
CLOCK = Clock(EPOCH_NS, 0, EPOCH_NS)
STEP_US = 100


def _leave_window(rank_folder: Path, first_step: int, events: list[Event]) -> None:
    """Leave a window of two steps that begins `first_step` × 100 µs after the epoch."""
    folder = events_path(rank_folder)
    folder.mkdir(parents=True, exist_ok=True)
    start_ns = EPOCH_NS + first_step * STEP_US * 1000
    write_trace(trace_file(folder, first_step), events, {"baseTimeNanoseconds": start_ns - BASE_US * 1000})
    ends = (start_ns + STEP_US * 1000, start_ns + 2 * STEP_US * 1000)
    write_window(folder, WindowNote(first_step, start_ns, ends[-1], ends, 5000))


def _events(stream: int = 7) -> list[Event]:
    return [
        operator("aten::mm", 10, 30),
        call(20, 5, 1),
        kernel("gemm", 40, 20, 1, stream),
        operator("aten::mm", 110, 30),
    ]


def test_window_gets_the_steps_and_the_clock_of_the_run(tmp_path: Path) -> None:
    _leave_window(tmp_path, 10, _events())
    tables = WindowAssembler(tmp_path, CLOCK).poll()
    rows = [row for row in tables["slices"].to_pylist() if row["name"] == "aten::mm"]
    assert [(row["step"], row["start_ns"]) for row in rows] == [(10, 1_010_000), (11, 1_110_000)]
    assert tables["kernels"]["step"].to_pylist() == [10]
    assert "steps" not in tables


def test_window_is_described_once_and_read_once(tmp_path: Path) -> None:
    _leave_window(tmp_path, 10, _events())
    assembler = WindowAssembler(tmp_path, CLOCK)
    assembler.poll()
    assert assembler.finish() == {}
    (window,) = assembler.describe()["windows"]
    assert (window.first_step, window.last_step, window.start_ns, window.stall_ns) == (10, 11, 1_000_000, 5000)


def test_a_window_is_read_with_less_weight_than_the_training_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group, seen = tmp_path / "autogroup", []

    def look(path: Path) -> WindowNote:
        seen.append(group.read_text() if group.exists() else None)
        return read_window(path)

    monkeypatch.setattr(module, "AUTOGROUP", group)
    monkeypatch.setattr(module, "read_window", look)
    _leave_window(tmp_path, 10, _events())
    assembler = WindowAssembler(tmp_path, CLOCK)
    assembler.follow(1)
    began = CLOCK.now()
    assert assembler.poll()["slices"].num_rows
    assert (seen, group.read_text()) == (["7"], "0")
    group.unlink()
    _leave_window(tmp_path, 50, _events())
    assert assembler.finish()["slices"].num_rows
    assert seen[1:] == [None], "no training runs any more"
    beside, after = assembler.describe()["windows"]
    assert began <= beside.read_start_ns < beside.read_end_ns <= CLOCK.now()
    assert (after.read_start_ns, after.read_end_ns) == (0, 0)


def test_second_window_goes_on_with_tracks_and_ids(tmp_path: Path) -> None:
    _leave_window(tmp_path, 10, _events())
    assembler = WindowAssembler(tmp_path, CLOCK)
    first = assembler.poll()
    _leave_window(tmp_path, 50, _events(stream=8))
    second = assembler.poll()
    ids = [*first["slices"]["id"].to_pylist(), *second["slices"]["id"].to_pylist()]
    assert ids == list(range(8))
    assert second["tracks"]["stream"].to_pylist() == [8]
    by_id = {row["id"]: row for row in second["slices"].to_pylist()}
    (work,) = [row for row in by_id.values() if row["name"] == "gemm"]
    assert by_id[work["launched_by"]]["name"] == "cudaLaunchKernel"
    threads = {
        row["track"] for rows in (first, second) for row in rows["slices"].to_pylist() if row["name"] == "aten::mm"
    }
    assert len(threads) == 1


def test_process_that_takes_over_reads_only_what_is_new(tmp_path: Path) -> None:
    _leave_window(tmp_path, 10, _events())
    before = WindowAssembler(tmp_path, CLOCK)
    before.poll()
    state = json.loads(json.dumps(before.checkpoint()))
    _leave_window(tmp_path, 50, _events())
    after = WindowAssembler(tmp_path, CLOCK)
    after.restore(state)
    assert after.poll()["slices"]["id"].to_pylist() == [4, 5, 6, 7]
    assert [window.first_step for window in after.describe()["windows"]] == [10, 50]
    assert after.describe()["facts"]["events"]["slices"] == 8


def test_trace_without_its_note_is_not_read_yet(tmp_path: Path) -> None:
    folder = events_path(tmp_path)
    folder.mkdir(parents=True)
    write_trace(trace_file(folder, 10), _events())
    assert WindowAssembler(tmp_path, CLOCK).poll() == {}


def test_damaged_note_is_said_and_costs_no_other_window(tmp_path: Path) -> None:
    _leave_window(tmp_path, 10, _events())
    (events_path(tmp_path) / "window-000000005.note.json").write_text("{", encoding="utf-8")
    assembler = WindowAssembler(tmp_path, CLOCK)
    assert assembler.poll()["slices"].num_rows == 4
    assert [signal.state for signal in assembler.describe()["signals"]] == ["failed"]
