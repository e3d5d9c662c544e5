"""A trace between decoding and tables: one row per slice, in the file's order, with all derived properties."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from collector.format.intervals import Ints, Mask
from collector.traces.kineto.classify.kinds import (
    DEVICE_WORK,
    FIRST_DEVICE_KIND,
    HOST_WORK,
    OPERATORS,
    Kind,
    KindColumn,
    classify,
)
from collector.traces.kineto.classify.lanes import Lanes, assign_lanes
from collector.traces.kineto.classify.nesting import Nesting, Spans, find_owners, nest
from collector.traces.kineto.decode.arguments import Arguments
from collector.traces.kineto.decode.digest import Columns
from collector.traces.kineto.decode.log import Log
from collector.traces.kineto.scratch import Scratch

_ROUNDING_NS = 1000
"""Files in whole microseconds round every start and every length, so a child may extend beyond its parent by 1 µs."""

NEVER_NS = -(1 << 63)
"""Before every slice."""
# Rows that are picked may lie far apart, each on a page of its own.
_TAKEN_ROWS = 1 << 14


@dataclass(frozen=True)
class Trace:
    """The slices of a trace as columns of equal length. Times count from the file's own base time.

    Four columns have row numbers of other slices, -1 for none. `owner` is the nearest host work around a slice,
    `caller` the nearest operator around it. `launch` is the call that launched device work. `operator` is the operator
    that launched device work or made a runtime call.
    """

    log: Log
    columns: Columns
    kind: KindColumn
    lanes: Lanes
    nesting: Nesting
    owner: Ints
    caller: Ints
    launch: Ints
    operator: Ints
    end_ns: Ints

    @property
    def arguments(self) -> Arguments:
        return self.log.args

    @property
    def start_ns(self) -> Ints:
        return self.columns.start_ns

    @cached_property
    def names(self) -> list[str]:
        return [str(name if name is not None else "") for name in self.log.names]

    def find_name(self, code: int) -> str:
        return self.names[code]

    def is_any(self, *kinds: Kind) -> Mask:
        return np.isin(self.kind, kinds)

    @cached_property
    def is_host_work(self) -> Mask:
        return self.is_any(*HOST_WORK)

    @cached_property
    def is_operator(self) -> Mask:
        return self.is_any(*OPERATORS)

    @cached_property
    def is_device_work(self) -> Mask:
        return self.is_any(*DEVICE_WORK)

    @cached_property
    def is_host(self) -> Mask:
        return self.kind < FIRST_DEVICE_KIND

    @cached_property
    def order(self) -> Ints:
        track, depth, scratch = self.lanes.track, self.nesting.depth, self.log.scratch
        rows = scratch.numbers(len(self.columns))
        return scratch.sort(self.start_ns, rows, lambda mine: (track[mine], depth[mine]))

    def find(self, mask: Mask) -> Iterator[Ints]:
        for rows in self.log.scratch.blocks(len(mask)):
            yield np.flatnonzero(mask[rows]) + rows.start

    def sort(self, mask: Mask) -> Ints:
        return self.log.scratch.sort(self.start_ns, self.log.scratch.where(mask))

    def take(self, column: Ints, rows: Ints) -> Ints:
        """Return `column[rows]`. A large result is an array on disk."""
        return self.log.scratch.compute(len(rows), lambda block: column[rows[block]], _TAKEN_ROWS)

    def find_launch_ns(self, rows: Ints | slice, else_ns: Ints | int | None = None) -> Ints:
        """Return the start of each slice's launch in ns; without a link `else_ns`, by default its own start."""
        launch = self.launch[rows]
        return np.where(launch >= 0, self.start_ns[launch], self.start_ns[rows] if else_ns is None else else_ns)

    def list_distinct(self, column: Ints, mask: Mask) -> list[int]:
        return sorted({value for rows in self.find(mask) for value in np.unique(column[rows]).tolist()})

    def find_busiest(self, rows: Ints) -> int:
        """Return the track with the most of the slices in `rows`, -1 without any slice."""
        return int(np.bincount(self.lanes.track[rows]).argmax()) if len(rows) else -1

    def find_named(self, is_wanted: Callable[[str], object]) -> Mask:
        return np.array([bool(is_wanted(name)) for name in self.names], bool)[self.columns.name]


def build_trace(log: Log) -> Trace:
    columns = log.columns()
    kind = classify(columns, log)
    lanes = assign_lanes(columns, kind, log)
    end_ns, whole = _find_ends(columns, log)
    spans = Spans(columns.start_ns, columns.duration_ns, (kind, columns.external), _ROUNDING_NS if whole else 0)
    nesting = nest(lanes.track, spans, log.scratch)
    owner = find_owners(nesting.parent, np.isin(kind, HOST_WORK), log.scratch)
    caller = find_owners(owner, np.isin(kind, OPERATORS), log.scratch)
    launch, operator = _link(columns, kind, (caller, owner), log.scratch)
    return Trace(log, columns, kind, lanes, nesting, owner, caller, launch, operator, end_ns)


def _find_ends(columns: Columns, log: Log) -> tuple[Ints, bool]:
    """Return the ends of the slices in ns, and whether all times are whole microseconds."""
    start_ns, duration_ns = columns.start_ns, columns.duration_ns
    ends = log.scratch.compute(len(columns), lambda rows: start_ns[rows] + duration_ns[rows])
    every = log.scratch.blocks(len(columns))
    whole = not any((start_ns[rows] % 1000).any() or (duration_ns[rows] % 1000).any() for rows in every)
    return ends, whole


def _link(columns: Columns, kind: KindColumn, around: tuple[Ints, Ints], scratch: Scratch) -> tuple[Ints, Ints]:
    """Return two columns: the launch call of each slice, and the operator that made this call.

    Both are linked by the correlation id. A launch outside of every operator is linked by the external id that
    operators pass down. `around` are two columns: the operator and the host work around each slice. Work that no
    operator launched belongs to the annotation around its launch. The flows of the file (`ac2g`) hold the same links,
    but old files and CUDA graphs have no flows.
    """
    is_device, is_call = np.isin(kind, (*DEVICE_WORK, Kind.SYNC)), kind == Kind.RUNTIME
    launch, operator = scratch.array(len(columns), -1), scratch.array(len(columns), -1)
    calls = _Index(columns.correlation, is_call, scratch)
    work = _Index(columns.external, np.isin(kind, HOST_WORK), scratch)
    for block in scratch.blocks(len(columns)):
        rows = np.flatnonzero(is_device[block] | is_call[block]) + block.start
        launched = calls.find(columns.correlation[rows])
        launch[rows] = np.where(is_device[rows], launched, -1)
        call = np.where(is_device[rows], launched, rows)
        around_call = np.where(around[0][call] >= 0, around[0][call], around[1][call])
        found = np.where(call >= 0, around_call, -1)
        operator[rows] = np.where(found >= 0, found, work.find(columns.external[rows]))
    return launch, operator


class _Index:
    """An index of the rows in a mask by id, for the first row with an id. Ids of 0 and below are not indexed."""

    def __init__(self, ids: Ints, mask: Mask, scratch: Scratch) -> None:
        rows = scratch.compute(len(ids), lambda block: np.flatnonzero(mask[block] & (ids[block] > 0)) + block.start)
        self._rows = scratch.sort(ids, rows)
        self._ids = scratch.compute(len(rows), lambda block: ids[self._rows[block]])

    def find(self, wanted: Ints) -> Ints:
        """Return the first row with each wanted id, -1 if no row has it."""
        if not len(self._ids):
            return np.full(len(wanted), -1, np.int64)
        at = np.minimum(np.searchsorted(self._ids, wanted), len(self._ids) - 1)
        return np.where(self._ids[at] == wanted, self._rows[at], -1)
