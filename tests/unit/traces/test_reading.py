"""What real files contain, each in a small file of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from collector.traces.format import ReadOptions, StepBounds
from collector.traces.reading import read_trace
from collector.traces.source import _read_beside
from tests.support.reading import read_events, slices_named
from tests.support.traces import operator, training_steps, write_trace


def test_name_of_the_file_does_not_matter(tmp_path: Path) -> None:
    named = write_trace(tmp_path / "worker0.pt.trace.json", training_steps())
    nameless = tmp_path / "x"
    nameless.write_bytes(named.read_bytes())
    assert read_trace(nameless).tables == read_trace(named).tables


@pytest.mark.parametrize(
    ("ts", "expected_ns"),
    [
        ("1000000.25", 250),
        ("1682725898236567.123", None),
        ("4458676416788.066", None),
        ('"1000000.5"', 500),
        ("1.000001e6", 1000),
    ],
)
def test_times_are_exact_however_they_are_spelled(tmp_path: Path, ts: str, expected_ns: int | None) -> None:
    first = '{"ph":"X","name":"a","pid":1,"tid":1,"ts":%s,"dur":0.001}'
    whole = ts.strip('"').split(".")[0] if "e" not in ts else "1000000"
    base = first.replace('"a"', '"b"') % whole
    path = tmp_path / "t.json"
    path.write_text(f'{{"traceEvents":[{base},{first % ts}]}}', encoding="utf-8")
    if expected_ns is None:
        expected_ns = int(ts.split(".")[1])
    (row,) = slices_named(read_trace(path), "a")
    assert (row["start_ns"], row["duration_ns"]) == (expected_ns, 1)


def test_wall_clock_comes_from_the_base_time(tmp_path: Path) -> None:
    base = 1_751_410_836_000_000_000
    path = write_trace(tmp_path / "t.json", [operator("a", 0.5, 1)], {"baseTimeNanoseconds": base})
    facts = read_trace(path).facts
    assert (facts.epoch_unix_ns, facts.absolute) == (base + 1_000_000_500, True)


def test_steps_that_the_run_knows_replace_those_of_the_trace(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "t.json", [operator("a", 10, 5), operator("a", 30, 5)], {"baseTimeNanoseconds": 0})
    start = 1_000_000_000
    bounds = StepBounds((41, 42), (start, start + 20_000), (start + 20_000, start + 50_000))
    read = read_trace(path, ReadOptions(epoch_unix_ns=start - 1000, steps=bounds))
    rows = slices_named(read, "a")
    assert [(row["step"], row["start_ns"]) for row in rows] == [(41, 11_000), (42, 31_000)]


def test_words_that_look_like_boundaries_do_not_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collector.traces.source.BLOCK_BYTES", 97)
    nasty = 'a"}, {"ph": "X", "name": "b"}], "traceName'
    events = [operator(nasty, i * 10, 5, note=[{"ph": 1}, {"ph": 2}], more=nasty) for i in range(40)]
    read = read_events(tmp_path, events)
    assert read.tables["slices"]["name"].to_pylist() == [nasty] * 40
    assert read.warnings[0].code == "trace_without_steps"


def test_blocks_of_any_size_give_the_same_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_trace(tmp_path / "t.json", training_steps(6))
    whole = read_trace(path).tables
    for size in (61, 1024, 5000):
        monkeypatch.setattr("collector.traces.source.BLOCK_BYTES", size)
        assert read_trace(path).tables == whole


def test_progress_reaches_the_end(tmp_path: Path) -> None:
    seen: list[float] = []
    read_trace(write_trace(tmp_path / "t.json", training_steps()), ReadOptions(on_progress=seen.append))
    assert seen[-1] == 1.0


def test_who_stops_to_read_waits_for_no_block() -> None:
    """While a generator that is dropped waits, Python loses a Ctrl-C: the import went on for minutes, to its end."""
    is_read = threading.Event()

    def make_blocks() -> Iterator[bytes]:
        yield b"first"
        is_read.wait(20)
        yield b"second"

    with closing(_read_beside(make_blocks())) as reading:
        assert next(reading) == b"first"
        begun_s = time.monotonic()
    assert time.monotonic() - begun_s < 10
    is_read.set()
