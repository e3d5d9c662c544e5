"""The device's time, summed up in batches as in one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from collector.format.intervals import unite
from profiler_server.timeline.device import DEVICE_ROWS, DeviceSlices, DeviceWork
from profiler_server.timeline.sources import Batch

CATEGORIES = ["kernel", "communication", "memcpy", "runtime"]
SLICES = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 25), st.integers(0, 3), st.integers(1, 2)), max_size=40)


def make_batch(rows: list[tuple[int, int, int, int]]) -> Batch:
    start, length, code, track = np.array(rows, np.int64).reshape(-1, 4).T
    names = pa.DictionaryArray.from_arrays(pa.array(code.astype(np.int32)), pa.array(CATEGORIES))
    zero = np.zeros(start.size, np.int32)
    return Batch(track.astype(np.int32), zero, start, start + length, names, names, zero.astype(np.uint32))


def sum_up(rows: list[tuple[int, int, int, int]], size: int) -> dict[str, list[tuple[int, int]]]:
    work = DeviceWork([1])
    found: list[DeviceSlices] = []
    for at in range(0, len(rows), size):
        found += work.add(make_batch(rows[at : at + size]))
    found += work.finish()
    summed: dict[str, list[tuple[int, int]]] = {row.name: [] for row in DEVICE_ROWS}
    for row, intervals in found:
        summed[DEVICE_ROWS[row].name] += zip(intervals.starts.tolist(), intervals.ends.tolist(), strict=True)
    return summed


@given(SLICES, st.integers(1, 9))
def test_batches_give_what_the_whole_gives(drawn: list[tuple[int, int, int, int]], size: int) -> None:
    rows = sorted(drawn)
    assert sum_up(rows, size) == sum_up(rows, len(rows) + 1)


@given(SLICES)
def test_the_rows_are_the_sets_that_they_are_named_after(drawn: list[tuple[int, int, int, int]]) -> None:
    rows = [row for row in sorted(drawn) if row[3] == 1 and row[2] < 3]
    kinds = [
        unite(*np.array([(a, a + n) for a, n, code, _ in rows if code == kind], np.int64).reshape(-1, 2).T)
        for kind in range(3)
    ]
    compute, communication, copies = kinds
    busy = compute | communication | copies
    found = sum_up(sorted(drawn), 5)
    assert found["Computation"] == list(zip(compute.starts.tolist(), compute.ends.tolist(), strict=True))
    exposed = copies - compute - communication
    assert found["Copies, exposed"] == list(zip(exposed.starts.tolist(), exposed.ends.tolist(), strict=True))
    free = sum(end - start for start, end in found["Free time"])
    assert free == (int(busy.ends[-1] - busy.starts[0]) - busy.length_ns if busy.starts.size else 0)


def test_work_of_other_tracks_is_not_the_device_s() -> None:
    assert not any(sum_up([(0, 10, 0, 2), (20, 10, 1, 2)], 5).values())
