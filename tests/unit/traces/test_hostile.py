"""Traces that are made, or broken, to mislead the reader or to take all memory: what is left out is said."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from collector.format.schema.errors import TraceError
from collector.traces.format import ReadOptions, StepBounds, TraceTables
from collector.traces.importing import import_trace
from collector.traces.kineto.decode.log import Log
from collector.traces.limits import ReadLimits
from collector.traces.reading import read_trace
from tests.support.reading import read_events
from tests.support.traces import Event, build_trace, call, kernel, operator, training_steps, write_trace

TO_LIMIT = """
import resource, sys
from collector.traces.reading import read_trace
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert all(read_trace(path).tables["slices"].num_rows for path in sys.argv[1:])
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)
"""


def _read(path: Path, events: list[Event]) -> TraceTables:
    return read_trace(write_trace(path, events))


def _find(read: TraceTables, code: str) -> str:
    return next((warning.text for warning in read.warnings if warning.code == code), "")


def test_a_long_text_in_one_event_takes_no_memory(tmp_path: Path) -> None:
    paths = []
    for field in ("correlation", "Sequence number", "ts", "dur", "stream"):
        events = training_steps(300)
        odd = next(event for event in events if event["name"] == "gemm_sm90")
        (odd if field in odd else odd["args"])[field] = "9" * 300_000
        paths.append(write_trace(tmp_path / f"{field}.json", events))
    found = subprocess.run([sys.executable, "-c", TO_LIMIT, *paths], capture_output=True, text=True, timeout=300)
    assert found.returncode == 0, found.stderr
    assert int(found.stdout) < 200


@pytest.mark.parametrize("length", [None, -1, -0.5])
def test_lengths_that_are_missing_or_below_nothing_count_as_nothing_and_are_said(tmp_path: Path, length: Any) -> None:
    events = training_steps()
    whole = read_events(tmp_path, events).tables["kernels"]["total_ns"].to_pylist()
    for event in events[5::11]:
        event["dur"] = length
        if length is None:
            del event["dur"]
    read = _read(tmp_path / "t.json", events)
    assert sum(read.tables["kernels"]["total_ns"].to_pylist()) < sum(whole)
    assert "3 events without a length" in _find(read, "trace_incomplete")


def test_events_that_are_listed_twice_count_once_and_are_said(tmp_path: Path) -> None:
    events = training_steps()
    whole, read = _read(tmp_path / "once.json", events), _read(tmp_path / "twice.json", [*events, *events])
    for table in ("slices", "operators", "kernels", "steps"):
        assert read.tables[table].to_pylist() == whole.tables[table].to_pylist()
    assert f"{len(events)} events listed twice" in _find(read, "trace_incomplete")
    assert whole.facts.facts["completeness"] == "complete"
    assert read.facts.facts["events"]["duplicates"] == len(events)


def test_a_trace_with_a_mark_of_utf_8_is_read(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps(build_trace(training_steps(30))), encoding="utf-8-sig")
    assert read_trace(path).tables["slices"].num_rows == 330


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32"])
def test_a_trace_in_another_encoding_is_refused(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps(build_trace(training_steps(30))), encoding=encoding)
    with pytest.raises(TraceError, match=r"t\.json is not a trace"):
        read_trace(path)


def test_many_members_of_a_packed_file_are_read_as_fast_as_one(tmp_path: Path) -> None:
    text = json.dumps(build_trace(training_steps(300))).encode()
    members = [gzip.compress(text[at : at + 20], 1) for at in range(0, len(text), 20)]
    path = tmp_path / "t.json.gz"
    path.write_bytes(b"".join(members))
    assert len(members) > 20_000
    begun_s = time.process_time()
    assert read_trace(path).tables["slices"].num_rows == 3300
    assert time.process_time() - begun_s < 60


def test_a_failure_that_nobody_foresaw_is_one_line_with_file_and_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_trace(tmp_path / "odd.json", training_steps())

    def fail(*_: object) -> None:
        raise MemoryError("Unable to allocate 46.2 GiB")

    monkeypatch.setattr(Log, "add", fail)
    with pytest.raises(TraceError, match=r"odd\.json cannot be read: .*memory.* \(at byte [\d,]+\)$"):
        import_trace(path, tmp_path / "runs/run")
    monkeypatch.undo()
    monkeypatch.setattr("collector.traces.staging.parts.write_batches", fail)
    with pytest.raises(TraceError, match=r"odd\.json cannot be read: .*memory"):
        import_trace(path, tmp_path / "runs/run")
    assert not any((tmp_path / "runs").iterdir())


@pytest.mark.parametrize(
    ("limits", "option"),
    [(ReadLimits(unpacked_bytes=1000), "--limit-gib"), (ReadLimits(seconds=-1), "--limit-minutes")],
)
def test_an_import_that_takes_too_much_ends_and_says_how_to_allow_it(
    tmp_path: Path, limits: ReadLimits, option: str
) -> None:
    path = tmp_path / "t.json.gz"
    path.write_bytes(gzip.compress(json.dumps(build_trace(training_steps(30))).encode()))
    with pytest.raises(TraceError, match=option):
        import_trace(path, tmp_path / "runs/run", limits=limits)
    assert not any((tmp_path / "runs").iterdir())


def test_what_a_trace_lacks_is_one_line_of_the_run(tmp_path: Path) -> None:
    calls = [call(at, 1, at) for at in range(10, 5000, 10)]
    cases = {
        "none of 499 launch calls has a kernel": calls,
        "350 of 499 launch calls have no kernel (70 %); the device was recorded from 3.5 ms": [
            *calls,
            *(kernel("k", at + 5, 4, at) for at in range(3510, 5000, 10)),
        ],
        "of device work, 1 of 2 have no launch call": [*calls[:1], kernel("k", 20, 4, 10), kernel("k", 30, 4, 77)],
        "of device work, 1 of 1 began before the launch call, by up to 0.485 ms": [
            *calls[50:51],
            kernel("k", 25, 4, 510),
        ],
        "of device work, 1 of 3 last longer than all the rest": [
            *calls[:3],
            *(kernel("k", at + 5, 4_294_967 if at == 20 else 4, at) for at in (10, 20, 30)),
        ],
        "nothing happens for 3,600.0 s": [operator("aten::mm", 0, 5), operator("aten::mm", 3.6e9, 5)],
    }
    for line, events in cases.items():
        read = _read(tmp_path / "t.json", events)
        assert line in read.facts.facts["completeness"]
        assert line in _find(read, "trace_incomplete")


def test_names_without_end_are_told_apart_up_to_a_size_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("collector.traces.kineto.decode.numbering.KEYS_LIMIT_BYTES", 20_000)
    read = _read(tmp_path / "t.json", [operator(f"aten::mm{at}", at * 10, 5) for at in range(500)])
    names = read.tables["slices"]["name"].to_pylist()
    assert names[0] == "aten::mm0"
    assert names[-1] == "(a name left out)"
    assert "lost a name" in _find(read, "trace_incomplete")


def test_a_pause_within_steps_that_the_run_timed_is_not_called_a_hole(tmp_path: Path) -> None:
    events = [operator("aten::mm", 0, 5), operator("aten::mm", 2e6, 5)]
    path = write_trace(tmp_path / "t.json", events, {"baseTimeNanoseconds": 0})
    for seconds, warned in ((3, []), (1, ["trace_incomplete"])):
        steps = StepBounds((7,), (0,), (seconds * 10**9,))
        read = read_trace(path, ReadOptions(epoch_unix_ns=0, steps=steps))
        assert [entry.code for entry in read.warnings if entry.code == "trace_incomplete"] == warned
