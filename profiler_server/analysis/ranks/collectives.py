"""Collectives matched across ranks: what the transfer takes, and how long each rank waits for the last one.

The transfer of a call is the shortest duration over its ranks, the wait of a rank is its own duration less that, and
the rank that starts last delays the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from collector.format.intervals import Floats, Ints, Mask
from collector.format.run import RankRun
from collector.format.schema.errors import TableMissingError
from collector.format.steps import read_integers

MOST_CALLS = 20_000
"""Calls of one rank that are looked at, from the first."""
_COLUMNS = ("step", "name", "group", "index", "start_ns", "duration_ns", "bytes", "group_size")
# Bus bandwidth is algorithm bandwidth times this, in (n - 1) / n.
_BUS_FACTORS = {"allreduce": 2.0, "allgather": 1.0, "reducescatter": 1.0, "alltoall": 1.0}


@dataclass(frozen=True, eq=False)
class Calls:
    """The collectives of one rank in time order; equal only to itself.

    `key` tells a call: group, name, step and how many came before it there.
    """

    key: tuple[tuple[str, str, int, int], ...]
    start_ns: Ints
    duration_ns: Ints
    bytes: Ints
    group_size: Ints


@dataclass(frozen=True)
class CollectiveRow:
    """The calls of one name by one rank. `wait_ns` is None where no other rank's calls match; `late` counts the calls
    for which this rank came last.

    Bandwidths are over the transfers, None where the sizes are not known. Where no other rank's calls match they are
    over the rank's own time, which holds its waits, and so are the least that they can be.
    """

    rank: int
    name: str
    count: int
    matched: int
    total_ns: int
    transfer_ns: int | None
    wait_ns: int | None
    late: int
    bytes: int | None
    algorithm_bytes_per_s: float | None
    bus_bytes_per_s: float | None


def read_calls(rank: RankRun) -> Calls | None:
    """Read the collectives of a rank, None without any. Raises TableBrokenError or NewerSchemaError."""
    try:
        table = rank.table("collectives", _COLUMNS)
    except TableMissingError:
        return None
    if not table.num_rows:
        return None
    table = table.sort_by("start_ns").slice(0, MOST_CALLS)
    start, duration, size, ranks = (
        read_integers(table, name, absent=-1) for name in ("start_ns", "duration_ns", "bytes", "group_size")
    )
    return Calls(_name_calls(table), start, duration, size, ranks)


def _name_calls(table: pa.Table) -> tuple[tuple[str, str, int, int], ...]:
    """Number calls within their step, because ranks may begin to record at different calls; without steps by index."""
    steps = table["step"].to_pylist()
    groups, names = (table[name].cast(pa.string()).to_pylist() for name in ("group", "name"))
    indices = table["index"].to_pylist()
    seen: dict[tuple[str, str, int], int] = {}
    keys = []
    for group, name, step, index in zip(groups, names, steps, indices, strict=True):
        if step is None:
            keys.append((group or "", name or "", -1, index))
            continue
        place = (group or "", name or "", step)
        keys.append((*place, seen.get(place, 0)))
        seen[place] = seen.get(place, 0) + 1
    return tuple(keys)


def match_collectives(calls: dict[int, Calls], one_clock: bool = True) -> tuple[CollectiveRow, ...]:
    """Match the calls of the ranks and sum them by rank and name, in that order.

    Without `one_clock` (ranks on several hosts) starts cannot be compared: the rank whose own call is the shortest is
    taken as the last, since a collective ends for all at once.
    """
    numbers: dict[tuple[str, str, int, int], int] = {}
    owner = np.concatenate(
        [np.full(len(c.key), rank, np.int64) for rank, c in calls.items()] or [np.empty(0, np.int64)]
    )
    call = np.array([numbers.setdefault(key, len(numbers)) for c in calls.values() for key in c.key], np.int64)
    if not len(call):
        return ()
    start, duration, size, ranks = (
        np.concatenate([getattr(c, name) for c in calls.values()])
        for name in ("start_ns", "duration_ns", "bytes", "group_size")
    )
    count = len(numbers)
    shortest = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(shortest, call, duration)
    members = np.bincount(call, minlength=count)
    last = _find_last(call, start if one_clock else -duration, count)
    rows = _Joined(owner, duration, size, ranks, shortest[call], members[call], last)
    names = np.array([name for c in calls.values() for _, name, _, _ in c.key])
    return tuple(
        _sum_rows(rows, (names == name) & (owner == rank), rank, name)
        for rank in calls
        for name in sorted(set(names[owner == rank].tolist()))
    )


@dataclass(frozen=True)
class _Joined:
    """One row per call and rank."""

    rank: Ints
    duration_ns: Ints
    bytes: Ints
    group_size: Ints
    transfer_ns: Ints
    members: Ints
    is_last: Mask


def _find_last(call: Ints, lateness: Ints, count: int) -> Mask:
    """Return for each row whether its rank came last to the call; of equals the first does."""
    order = np.lexsort((-np.arange(len(call)), lateness, call))
    latest = np.full(count, -1, np.int64)
    latest[call[order]] = order  # the last write of each call stays: the greatest lateness
    found = np.zeros(len(call), np.bool_)
    found[latest] = True
    return found


def _sum_rows(rows: _Joined, mask: Mask, rank: int, name: str) -> CollectiveRow:
    matched = mask & (rows.members > 1)
    some = bool(matched.any())
    transfer = int(rows.transfer_ns[matched].sum())
    sized = mask & (rows.bytes > 0)
    timed = sized & (matched if some else mask)
    return CollectiveRow(
        rank=rank,
        name=name,
        count=int(mask.sum()),
        matched=int(matched.sum()),
        total_ns=int(rows.duration_ns[mask].sum()),
        transfer_ns=transfer if some else None,
        wait_ns=int(rows.duration_ns[matched].sum()) - transfer if some else None,
        late=int((matched & rows.is_last).sum()),
        bytes=int(rows.bytes[sized].sum()) if sized.any() else None,
        algorithm_bytes_per_s=_measure_bandwidth(rows, timed),
        bus_bytes_per_s=_measure_bus(rows, timed & (rows.group_size > 1), name),
    )


def _measure_bandwidth(rows: _Joined, mask: Mask, factors: Floats | None = None) -> float | None:
    """Return bytes per second over the calls of a mask, each weighed with its factor."""
    spent = int(rows.transfer_ns[mask].sum())
    moved = rows.bytes[mask] if factors is None else rows.bytes[mask] * factors
    return float(moved.sum() / spent * 1e9) if spent else None


def _measure_bus(rows: _Joined, mask: Mask, name: str) -> float | None:
    plain = name.lower().replace("_", "")
    factor = next((value for key, value in _BUS_FACTORS.items() if key in plain), None)
    size = rows.group_size[mask]
    return None if factor is None else _measure_bandwidth(rows, mask, factor * (size - 1) / size)


def count_late(rows: Sequence[CollectiveRow]) -> dict[int, int]:
    """Return how often each rank came last, over all its matched calls."""
    counts: dict[int, int] = {}
    for row in rows:
        counts[row.rank] = counts.get(row.rank, 0) + row.late
    return counts
