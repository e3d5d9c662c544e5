from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.format.schema.manifest import Device
from collector.traces.kineto.decode.clock import (
    MOST_NS,
    NO_TIME,
    InexactTimesError,
    convert_numbers,
    convert_one,
    convert_texts,
)
from collector.traces.kineto.decode.events import Loose
from collector.traces.reading import read_trace
from tests.support.reading import read_events
from tests.support.traces import call, kernel, operator, write_trace

NS = st.integers(0, 4_000_000_000 * 10**9)


def _spell(time_ns: int) -> str:
    return f"{time_ns // 1000}.{time_ns % 1000:03d}"


@given(st.lists(st.integers(0, (1 << 43) * 1000 - 1), min_size=1))
def test_doubles_below_the_limit_give_the_exact_time(times: list[int]) -> None:
    assert convert_numbers([float(_spell(time)) for time in times]).tolist() == times


@given(st.lists(NS, min_size=1))
def test_texts_give_the_exact_time(times: list[int]) -> None:
    assert convert_texts([msgspec.Raw(_spell(time).encode()) for time in times]).tolist() == times


@given(st.lists(st.integers(0, 4_000_000_000_000_000), min_size=1))
def test_whole_microseconds_give_the_exact_time(times: list[int]) -> None:
    assert convert_numbers(list(times)).tolist() == [time * 1000 for time in times]


def test_doubles_that_cannot_hold_the_time_are_refused() -> None:
    with pytest.raises(InexactTimesError):
        convert_numbers([1682725898236567.123])


@pytest.mark.parametrize(
    "text", ["null", "x", "1e300", "1e999999999", "NaN", "Infinity", "-9e18", "9" * 19, "9" * 26, ""]
)
def test_text_that_is_no_time_is_told_from_zero(text: str) -> None:
    texts = [msgspec.Raw(text.encode()), msgspec.Raw(b"2.5"), msgspec.Raw(b"0")]
    assert convert_texts(texts).tolist() == [NO_TIME, 2500, 0]


@pytest.mark.parametrize("value", [None, "x", "NaN", "1e300", "", -(10**25), MOST_NS // 1000 + 1])
def test_value_that_is_no_time_is_told_from_zero(value: Loose) -> None:
    assert convert_numbers([value, 2, 0]).tolist() == [NO_TIME, 2000, 0]
    assert convert_one(value) == NO_TIME


@pytest.mark.parametrize("value", [1e300, float("inf"), float("nan")])
def test_double_that_is_no_time_is_left_to_its_text(value: float) -> None:
    with pytest.raises(InexactTimesError):
        convert_numbers([value, 2.5])


@pytest.mark.parametrize("spelled", [["", "1700000000000000.5"], ["null", "1700000000000000.5"]])
def test_length_that_is_absent_is_what_the_caller_says(spelled: list[str]) -> None:
    texts = [msgspec.Raw(text.encode()) for text in spelled]
    assert convert_texts(texts, absent="0").tolist() == [0, 1700000000000000500]


def test_rank_comes_from_the_file_or_its_name(tmp_path: Path) -> None:
    said = write_trace(tmp_path / "a.json", [operator("a", 0, 1)], {"distributedInfo": {"rank": 3, "world_size": 8}})
    named = write_trace(tmp_path / "host_rank12.json", [operator("a", 0, 1)])
    assert (read_trace(said).facts.rank, read_trace(said).facts.world_size) == (3, 8)
    assert read_trace(named).facts.rank == 12


@pytest.mark.parametrize(("name", "kind"), [("hipLaunchKernel", "rocm"), ("cudaLaunchKernel", "cuda")])
def test_devices_that_no_line_describes_are_those_that_kernels_name(tmp_path: Path, name: str, kind: str) -> None:
    on_second = {"device": 1}
    events = [call(0, 2, 9, name), kernel("a", 3, 1, 9), call(5, 2, 10, name), kernel("b", 8, 1, 10, **on_second)]
    read = read_events(tmp_path, events, {"deviceProperties": []})
    assert read.facts.devices == (Device(0, "", kind), Device(1, "", kind))


def test_trace_without_device_work_has_no_device(tmp_path: Path) -> None:
    events = [operator("a", 0, 5), call(1, 1, 3, "cudaGetDeviceCount")]
    assert read_events(tmp_path, events, {"deviceProperties": []}).facts.devices == ()
