"""Times that cannot be true: the event is left out and counted, the others stay as they are."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collector.traces.format import TraceTables
from collector.traces.kineto.decode.log import REACH_NS, find_reach, is_within
from collector.traces.kineto.scratch import Scratch
from tests.support.reading import read_events
from tests.support.traces import Event, operator, training_steps

NOW_US = 1_700_000_000_000_000
DAY_US = 86_400 * 10**6


class _Absent:
    """Its name is that of a test, which must be the same in every process."""

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT = _Absent()


def _move(events: list[Event], by_us: int) -> list[Event]:
    return [{**event, "ts": int(event["ts"]) + by_us} for event in events]


def _count(read: TraceTables) -> dict[str, int]:
    counts: dict[str, int] = read.facts.facts["events"]
    return counts


def _check_same(read: TraceTables, good: TraceTables, dropped: int = 1) -> None:
    """Compare with the trace without the events: nothing else may differ."""
    for table in good.tables:
        assert read.tables[table].equals(good.tables[table]), table
    assert read.facts.end_ns == good.facts.end_ns
    assert (read.events_lost, _count(read)["lost"]) == (dropped, dropped)
    assert _count(read)["slices"] == _count(good)["slices"]
    said = [warning.text for warning in read.warnings if warning.code == "trace_events_untimed"]
    assert [re.findall(r"\d+", text)[0] for text in said] == [str(dropped)]


@pytest.mark.parametrize(
    "change",
    [
        {"ts": ABSENT},
        {"ts": None},
        {"ts": "soon"},
        {"ts": ""},
        {"ts": 1e300},
        {"ts": -1e300},
        {"ts": 10**25},
        {"ts": -NOW_US},
        {"ts": NOW_US * 2},
        {"dur": 1e18},
        {"dur": 10**18},
        {"dur": "long"},
        {"dur": 400 * DAY_US},
    ],
    ids=str,
)
def test_event_whose_times_cannot_be_true_is_dropped_singly(tmp_path: Path, change: dict[str, Any]) -> None:
    for base_us in (0, NOW_US):
        events = _move(training_steps(1), base_us)
        odd = {key: value for key, value in {**events[3], **change}.items() if value is not ABSENT}
        good = read_events(tmp_path, events)
        _check_same(read_events(tmp_path, [*events[:5], odd, *events[5:]]), good)


@pytest.mark.parametrize("time_us", [0, 5, -5, NOW_US - 20_000 * DAY_US, NOW_US + 20_000 * DAY_US])
def test_event_decades_from_the_others_is_dropped(tmp_path: Path, time_us: int) -> None:
    events = _move(training_steps(), NOW_US)
    good = read_events(tmp_path, events)
    read = read_events(tmp_path, [*events, {**events[0], "ts": time_us}])
    _check_same(read, good)


def test_times_spread_over_months_are_all_kept(tmp_path: Path) -> None:
    events = [operator("a", day * DAY_US, 10) for day in (0, 100, 300)]
    read = read_events(tmp_path, events)
    assert (read.tables["slices"].num_rows, read.events_lost) == (3, 0)


def _allocate(time_us: Any) -> Event:
    args = {"Bytes": 8, "Total Allocated": 8, "Device Type": 1, "Device Id": 0}
    return {"ph": "i", "name": "[memory]", "pid": 100, "tid": 100, "ts": time_us, "args": args}


def _count_up(time_us: Any) -> Event:
    return {"ph": "C", "name": "level", "pid": 100, "ts": time_us, "args": {"of": 1.5}}


def test_allocations_and_counters_without_a_true_time_are_dropped(tmp_path: Path) -> None:
    events = _move([*training_steps(), _allocate(1100), _count_up(1200)], NOW_US)
    odd = [make(time_us) for make in (_allocate, _count_up) for time_us in (None, "soon", 5, 1e300)]
    good = read_events(tmp_path, events)
    _check_same(read_events(tmp_path, [*odd, *events]), good, dropped=len(odd))


@pytest.mark.parametrize("times", [(None, 1200), (1100, "soon"), (1100, NOW_US)])
def test_begin_and_end_without_a_true_length_make_no_slice(tmp_path: Path, times: tuple[Any, Any]) -> None:
    where = {"cat": "cpu_op", "pid": 100, "tid": 100}
    pair = [{"ph": ph, "name": "a", "ts": time, **where} for ph, time in zip("BE", times, strict=True)]
    good = read_events(tmp_path, training_steps())
    _check_same(read_events(tmp_path, [*pair, *training_steps()]), good)


def test_spans_of_the_profiler_are_counted_as_such_whatever_their_times(tmp_path: Path) -> None:
    span = {"ph": "X", "cat": "Trace", "name": "PyTorch Profiler (0)", "pid": "Spans", "tid": "PyTorch Profiler"}
    read = read_events(tmp_path, [*training_steps(), {**span, "ts": 0, "dur": 1e18}])
    assert (_count(read)["profiler_spans"], read.events_lost) == (1, 0)


def test_reach_is_a_year_around_where_most_events_are() -> None:
    now_ns = NOW_US * 1000
    starts = np.array([0, 0, 5, *range(now_ns, now_ns + 50)])
    reach = find_reach(starts)
    assert is_within(Scratch(), reach, starts).tolist() == [False] * 3 + [True] * 50
    assert reach[1] - reach[0] == 2 * REACH_NS
    assert is_within(Scratch(), (0, 10), np.array([0, 5, 5, -1]), np.array([10, 5, 6, 1])).tolist() == [
        True,
        True,
        False,
        False,
    ]
