"""The stage assembler: records of a log become rows, once, also when another process takes over."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from collector.format.schema.layout import events_path
from collector.ring.clock import Clock
from collector.ring.stage_log import BATCH, CAPACITY, KINDS, PART, SEND, SPAN, STAGES, Batch, Part, Send, Span, StageLog
from collector.sidecar.assemblers.stages import StageAssembler

CLOCK = Clock(0, 0, 0)


@pytest.fixture
def rank_folder(tmp_path: Path) -> Path:
    events_path(tmp_path).mkdir(parents=True)
    return tmp_path


def open_log(rank_folder: Path, name: str = "stages-0-1-0.ring", replica: int = 0) -> StageLog:
    return StageLog(events_path(rank_folder) / name, replica)


def add_batch(log: StageLog, number: int, timed: int = 1, read_ns: int = 600, **values: int) -> None:
    begin = 10_000 * number
    batch = Batch(0, 1, number, begin, begin + 100, begin + 1100, timed, read_ns, 50, 200, 150, 8, 90, 3, -1)
    log.add(BATCH, batch._replace(**values))


def add_part(log: StageLog, number: int, name: str, duration_ns: int) -> None:
    log.add(PART, Part(0, 1, number, log.name(name), duration_ns, duration_ns // 2, 8, duration_ns // 4, 5))


def read_rows(assembler: StageAssembler) -> list[dict[str, Any]]:
    table = assembler.poll().get("stages", pa.table({}))
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def test_the_stages_of_a_batch_lie_end_to_end(rank_folder: Path) -> None:
    log = open_log(rank_folder)
    add_part(log, 0, "Rotate", 120)
    add_part(log, 0, "Blur", 80)
    add_batch(log, 0)
    spans = [
        (row["stage"], row["kind"], row["detail"], row["start_ns"], row["duration_ns"])
        for row in read_rows(StageAssembler(rank_folder, CLOCK))
    ]
    assert spans == [
        ("read", "input_wait", None, 0, 100),
        ("read", "work", None, 100, 600),
        ("transform", "work", "Rotate", 700, 120),
        ("transform", "work", "Blur", 820, 80),
        ("collate", "work", None, 900, 200),
    ]


def test_a_batch_that_was_not_timed_is_divided_like_those_that_were(rank_folder: Path) -> None:
    log = open_log(rank_folder)
    add_part(log, 0, "Rotate", 200)
    add_batch(log, 0)
    add_batch(log, 1, timed=0, read_ns=801)
    rows = [row for row in read_rows(StageAssembler(rank_folder, CLOCK)) if row["batch"] == 1 and row["kind"] == "work"]
    assert [(row["stage"], row["detail"], row["duration_ns"]) for row in rows] == [
        ("read", None, 601),
        ("transform", "Rotate", 200),
        ("collate", None, 200),
    ]
    assert [row["cpu_ns"] for row in rows] == [None, None, 150]


def test_the_slowest_sample_is_kept_where_it_is_known(rank_folder: Path) -> None:
    log = open_log(rank_folder)
    add_batch(log, 0)
    add_batch(log, 1, longest_ns=-1, longest_item=-1)
    rows = read_rows(StageAssembler(rank_folder, CLOCK))
    reads = [row for row in rows if (row["stage"], row["kind"]) == ("read", "work")]
    assert [(row["longest_ns"], row["longest_item"]) for row in reads] == [(90, 3), (None, None)]


def test_time_on_the_pipe_that_did_no_work_is_a_wait(rank_folder: Path) -> None:
    log = open_log(rank_folder)
    add_batch(log, 0)
    log.add(SEND, Send(0, 1, 0, 1_000, 2_000, 32_000, 62_000, 5_000, 6_000, 777))
    sends = [row for row in read_rows(StageAssembler(rank_folder, CLOCK)) if row["stage"] == "send"]
    assert [(row["kind"], row["start_ns"], row["duration_ns"], row["items"]) for row in sends] == [
        ("work", 1_000, 6_000, 8),
        ("output_wait", 7_000, 55_000, 8),
    ]
    assert sends[0]["bytes"] == 777


def test_a_span_becomes_a_row(rank_folder: Path) -> None:
    log = open_log(rank_folder, replica=2)
    log.add(SPAN, Span(0, 1, -1, STAGES.index("read"), KINDS.index("setup"), 5, 7, 3, 0, 0))
    (row,) = read_rows(StageAssembler(rank_folder, CLOCK))
    names = ("stage", "kind", "replica", "batch", "duration_ns")
    assert [row[name] for name in names] == ["read", "setup", 2, None, 7]


def test_times_are_counted_from_the_epoch_of_the_run(rank_folder: Path) -> None:
    add_batch(open_log(rank_folder), 0, asked_ns=100)
    (row, *_) = read_rows(StageAssembler(rank_folder, Clock(epoch_unix_ns=1_000, perf_ns=60, unix_ns=1_010)))
    assert row["start_ns"] == 50


def test_parts_and_batch_may_come_in_two_polls(rank_folder: Path) -> None:
    log = open_log(rank_folder)
    assembler = StageAssembler(rank_folder, CLOCK)
    add_part(log, 0, "Rotate", 120)
    assert read_rows(assembler) == []
    add_batch(log, 0)
    assert "Rotate" in [row["detail"] for row in read_rows(assembler)]


def test_another_process_goes_on_after_the_checkpoint(rank_folder: Path) -> None:
    log = open_log(rank_folder)
    first = StageAssembler(rank_folder, CLOCK)
    add_part(log, 0, "Rotate", 120)
    add_batch(log, 0)
    assert len(read_rows(first)) == 4
    add_part(log, 1, "Rotate", 120)
    assert read_rows(first) == []
    state = first.checkpoint()
    add_batch(log, 1)
    second = StageAssembler(rank_folder, CLOCK)
    second.restore(state)
    assert [(row["batch"], row["detail"]) for row in read_rows(second)] == [
        (1, None), (1, None), (1, "Rotate"), (1, None),
    ]  # fmt: skip


def test_a_closed_log_is_removed_once_its_rows_are_written(rank_folder: Path) -> None:
    log = open_log(rank_folder)
    add_batch(log, 0)
    log.close()
    assembler = StageAssembler(rank_folder, CLOCK)
    assert len(read_rows(assembler)) == 3
    successor = StageAssembler(rank_folder, CLOCK)
    successor.restore(assembler.checkpoint())
    assert read_rows(successor) == []
    (ring,) = events_path(rank_folder).iterdir()
    assembler.release()
    assert not ring.exists()
    assert read_rows(assembler) == []


def test_the_log_of_a_killed_worker_is_read_and_removed(rank_folder: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from collector.ring.stage_log import *\n"
        "log = StageLog(Path(sys.argv[1]), 1); log.add(SPAN, Span(0, 1, -1, 0, 3, 5, 7, 3, 0, 0)); os._exit(9)"
    )
    ring = events_path(rank_folder) / "stages-0-1-1.ring"
    subprocess.run([sys.executable, "-c", code, str(ring)], check=False)
    assembler = StageAssembler(rank_folder, CLOCK)
    assert [row["replica"] for row in read_rows(assembler)] == [1]
    assembler.release()
    assert not ring.exists()


def test_lost_records_are_counted_and_notes_told(rank_folder: Path) -> None:
    log = open_log(rank_folder)
    for number in range(CAPACITY + 10):
        add_batch(log, number)
    log.note("a worker was not profiled to its end: ValueError('ä')")
    assembler = StageAssembler(rank_folder, CLOCK)
    read_rows(assembler)
    told = assembler.describe()
    assert told["events_lost"] == 11
    assert [warning["text"] for warning in told["warnings"]] == [
        "a worker was not profiled to its end: ValueError('ä')"
    ]


@pytest.mark.parametrize("name", ["ä" * 200, "x" * 500, "", "<script>"])
def test_any_name_of_a_transform_survives_as_far_as_it_fits(rank_folder: Path, name: str) -> None:
    log = open_log(rank_folder)
    add_part(log, 0, name, 10)
    add_batch(log, 0)
    detail = [row["detail"] for row in read_rows(StageAssembler(rank_folder, CLOCK)) if row["stage"] == "transform"]
    assert name.startswith(detail[0] or "")
    assert len((detail[0] or "").encode()) > min(len(name.encode()), 120) - 2
