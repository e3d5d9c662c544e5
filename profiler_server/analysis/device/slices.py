"""The slices of a rank as arrays, for the accounts of device and host time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from collector.format.intervals import Intervals, Ints, Mask
from collector.format.run import RankRun
from profiler_server.analysis.tables import choose, find_places, read_rows


def read_steps(rank: RankRun) -> tuple[Ints, Ints]:
    """Return start and end of the training steps recorded in detail, in time order. Raises as `read_rows` does."""
    data = choose(read_rows(rank, "steps", ("kind", "start_ns", "duration_ns", "detailed")), "kind", "train")
    data = data.filter(data["detailed"])
    starts, lengths = to_ints(data["start_ns"]), to_ints(data["duration_ns"])
    return starts, starts + lengths


def read_spans(rank: RankRun, starts: Ints, ends: Ints) -> Intervals:
    """Return the time from the first to the last of the detailed steps of each window; of all for an imported trace."""
    if not rank.manifest.windows:
        return Intervals(starts[:1], ends[-1:])
    inside = [(starts < window.end_ns) & (ends > window.start_ns) for window in rank.manifest.windows]
    spans = [(starts[steps].min(), ends[steps].max()) for steps in inside if steps.any()]
    return Intervals(*np.array(spans, np.int64).reshape(-1, 2).T)


def read_slices(rank: RankRun, columns: Sequence[str]) -> pa.Table | None:
    """Return the slices of a rank, or None without slices. Raises TableBrokenError or NewerSchemaError.

    Millions of slices take hundreds of megabytes. So convert them to arrays in a function that returns, then call
    `release_slices`.
    """
    release_slices()
    data = read_rows(rank, "slices", columns)
    return data if data.num_rows else None


def release_slices() -> None:
    """Release the memory of slices that are no longer used. Otherwise Arrow keeps it, and arrays cannot use it."""
    pa.default_memory_pool().release_unused()


def read_stream_tracks(rank: RankRun) -> dict[int, int]:
    """Return the device of each track that is a stream."""
    data = rank.table("tracks", columns=["track", "kind", "device"]).to_pydict()
    rows = zip(data["track"], data["kind"], data["device"], strict=True)
    return {track: device or 0 for track, kind, device in rows if kind == "stream"}


def read_thread_tracks(rank: RankRun) -> tuple[int, ...]:
    data = rank.table("tracks", columns=["track", "kind"]).to_pydict()
    return tuple(track for track, kind in zip(data["track"], data["kind"], strict=True) if kind == "thread")


def to_ints(column: pa.ChunkedArray) -> Ints:
    return np.asarray(column.to_numpy(), np.int64)


class Texts:
    """A dictionary-encoded column of slices. A test is applied once to each distinct text. Null never passes a test."""

    def __init__(self, column: pa.ChunkedArray) -> None:
        whole = column.combine_chunks()
        self._texts: list[str] = whole.dictionary.to_pylist()
        codes = whole.indices.fill_null(len(self._texts)) if whole.null_count else whole.indices
        self._codes = codes.to_numpy()

    def match(self, test: Callable[[str], object]) -> Mask:
        """Return a mask of the rows that pass a test."""
        passed: Mask = np.array([*(bool(test(text)) for text in self._texts), False], bool)[self._codes]
        return passed

    def number(self, values: Mapping[str, int]) -> Ints:
        """Return the value that `values` has for each row's text, -1 for a text without a value."""
        numbers: Ints = np.array([*(values.get(text, -1) for text in self._texts), -1], np.int64)[self._codes]
        return numbers


_DEEPEST = 300
"""Levels that are followed. Rows of a damaged table may name each other as parents in a circle."""


def count_parents(ids: Ints, parents: Ints) -> npt.NDArray[np.int32]:
    """Return the number of ancestors of each row: parent, parent's parent and so on. A row whose parent is not in `ids`
    has none.
    """
    return count_levels(find_places(ids, parents), np.arange(ids.size)).astype(np.int32)


def count_levels(parent: Ints, rows: Ints) -> Ints:
    """Return the number of ancestors of each of `rows`. `parent` has the parent of every row, -1 for none."""
    depth = np.zeros(len(rows), np.int64)
    above = parent[rows]
    for _ in range(_DEEPEST):  # one round per level
        inside = above >= 0
        if not inside.any():
            break
        depth += inside
        above = np.where(inside, parent[above], -1)
    return depth
