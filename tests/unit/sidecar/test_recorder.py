"""The recorder goes on whatever the disk and the assemblers do."""

from __future__ import annotations

import dataclasses
import errno
import os
from pathlib import Path
from typing import Any

import pytest

from collector.format import parts
from collector.format.run import open_run
from collector.format.schema.layout import RANK_FILE
from collector.notes import read_notes, write_notes
from collector.options import parse_options
from collector.session.recording import Recording
from collector.sidecar import recorder as module
from collector.sidecar.assemblers.steps import StepsAssembler
from collector.sidecar.process import main, recover_run
from collector.sidecar.recorder import Recorder
from tests.support import shapes


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    recording = Recording(tmp_path, parse_options({"window": None}), with_sidecar=False)
    recording.resume()
    shapes.plain()
    recording.leave()
    return recording


def test_notes_that_name_another_process_than_the_one_that_started_the_recorder_are_not_followed(
    tmp_path: Path, recording: Recording
) -> None:
    folder = recording.place.rank_folder
    notes = read_notes(folder)
    write_notes(dataclasses.replace(notes, pid=os.getppid(), pid_started=None), folder)
    assert main([str(folder), str(os.getpid())]) == 1
    assert not (folder / RANK_FILE).exists()
    write_notes(notes, folder)
    assert main([str(folder), str(os.getpid())]) == 0
    assert count_train(tmp_path)


def count_train(path: Path) -> int:
    return int((open_run(path).frame("steps").kind == "train").sum())


def test_a_flush_says_up_to_when_the_tables_go_and_how_far_flushes_are_apart(
    tmp_path: Path, recording: Recording
) -> None:
    recorder = Recorder(recording.place.rank_folder)
    recorder.poll()
    recorder.flush()
    rank = open_run(tmp_path).rank(0)
    last = rank.table("steps").to_pylist()[-1]
    assert rank.manifest.recorded_until_ns == last["start_ns"] + last["duration_ns"]
    assert rank.manifest.flush_s is not None
    assert module.FLUSH_S <= rank.manifest.flush_s <= module.MOST_FLUSH_S
    assert Recorder(recording.place.rank_folder)._recorded_until_ns == rank.manifest.recorded_until_ns


def test_rows_wait_while_the_disk_is_full(
    tmp_path: Path, recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = Recorder(recording.place.rank_folder)

    def refuse(*arguments: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(parts, "write_part", refuse)
        recorder.poll()
        recorder.flush()
    recorder.finish("complete")
    assert count_train(tmp_path) == 10


def test_the_oldest_rows_go_when_too_many_wait(
    tmp_path: Path, recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_PENDING_ROWS", 30)
    recorder = Recorder(recording.place.rank_folder)
    recorder.finish("complete")
    codes = [warning.code for warning in open_run(tmp_path).rank(0).manifest.warnings]
    assert codes == ["rows_dropped"]


def test_an_assembler_that_raises_is_named_and_the_rest_goes_on(
    tmp_path: Path, recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: StepsAssembler) -> None:
        raise RuntimeError("a fault")

    monkeypatch.setattr(StepsAssembler, "finish", fail)
    recorder = Recorder(recording.place.rank_folder)
    recorder.finish("complete")
    manifest = open_run(tmp_path).rank(0).manifest
    failed = {signal.name: signal.reason for signal in manifest.signals if signal.state == "failed"}
    assert "a fault" in failed["steps"]
    assert manifest.state == "complete"


def test_a_lack_of_memory_is_no_fault_of_an_assembler_and_costs_no_row(
    tmp_path: Path, recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lack(self: StepsAssembler) -> None:
        raise MemoryError

    with monkeypatch.context() as lacking:
        lacking.setattr(StepsAssembler, "poll", lack)
        with pytest.raises(OSError, match=os.strerror(errno.ENOMEM)):
            Recorder(recording.place.rank_folder).poll()
    Recorder(recording.place.rank_folder).finish("complete")
    assert count_train(tmp_path) == 10
    assert [signal for signal in open_run(tmp_path).rank(0).manifest.signals if signal.state == "failed"] == []


def test_a_recorder_that_takes_over_writes_each_row_once(tmp_path: Path) -> None:
    recording = Recording(tmp_path, parse_options({"window": None}), with_sidecar=False)
    recording.resume()
    shapes.plain()
    first = Recorder(recording.place.rank_folder)
    first.poll()
    first.flush()
    shapes.plain()
    first.poll()  # read, but not written: the next recorder must read it again
    recording.leave()
    Recorder(recording.place.rank_folder).finish("complete")
    steps = open_run(tmp_path).frame("steps")
    assert steps[steps.kind == "train"].step.tolist() == list(range(1, 21))
    assert (steps.start_ns.shift(-1) - steps.start_ns - steps.duration_ns).dropna().eq(0).all()


@pytest.mark.parametrize(
    ("number", "lasts", "first"), [(errno.ENOSPC, False, 1), (errno.EIO, True, 4), (errno.EIO, False, 9)]
)
def test_whatever_write_fails_the_run_opens_names_the_error_and_is_completed_later(
    tmp_path: Path, recording: Recording, monkeypatch: pytest.MonkeyPatch, number: int, lasts: bool, first: int
) -> None:
    """Every call to the disk in its turn is in tests/disk."""
    replace, done = os.replace, [0]

    def fail(source: Any, target: Any, **folders: int) -> None:
        done[0] += 1
        if done[0] == first or (lasts and done[0] > first):
            raise OSError(number, os.strerror(number), str(target))
        replace(source, target, **folders)

    Recorder(recording.place.rank_folder).flush()
    with monkeypatch.context() as failing:
        failing.setattr(os, "replace", fail)
        problem = recording.finish()
    assert (os.strerror(number) in problem) or not problem
    assert open_run(tmp_path).rank(0).manifest.rank == 0
    recover_run(tmp_path)
    assert (open_run(tmp_path).state, count_train(tmp_path)) == ("complete", 10)
