"""A trace between decoding and tables: one row per slice, in the order of the file, with what was found out about it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from collector.traces.kineto.arguments import Arguments
from collector.traces.kineto.classify import DEVICE_WORK, FIRST_DEVICE_KIND, HOST_WORK, OPERATORS, Kind, Kinds, classify
from collector.traces.kineto.clock import Ints
from collector.traces.kineto.collect import Log
from collector.traces.kineto.digest import Columns
from collector.traces.kineto.lanes import Lanes, assign_lanes
from collector.traces.kineto.links import Links, link
from collector.traces.kineto.nest import Nesting, Spans, find_owners, nest
from collector.traces.kineto.scratch import blocks
from collector.traces.kineto.sort import sort_rows

_ROUNDING_NS = 1000
"""Files in whole microseconds round every start and every length, so a child may stick out by one."""

# Rows that are picked may lie far apart, each on a page of its own.
_TAKEN_ROWS = 1 << 14

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Trace:
    """Columns of the same length, times in the file's own base.

    `owner` is the nearest host work around a slice, `caller` the nearest that is an operator and no annotation.
    """

    log: Log
    columns: Columns
    kinds: Kinds
    arguments: Arguments
    lanes: Lanes
    nesting: Nesting
    owner: Ints
    caller: Ints
    links: Links
    end_ns: Ints

    @property
    def start_ns(self) -> Ints:
        return self.columns.start_ns

    @cached_property
    def names(self) -> list[str]:
        """The names by number."""
        return [str(name if name is not None else "") for name in self.log.names]

    @cached_property
    def is_host_work(self) -> Mask:
        return self.kinds.mask(*HOST_WORK)

    @cached_property
    def is_operator(self) -> Mask:
        return self.kinds.mask(*OPERATORS)

    @cached_property
    def is_device_work(self) -> Mask:
        return self.kinds.mask(*DEVICE_WORK)

    @cached_property
    def is_host(self) -> Mask:
        return self.kinds.kind < FIRST_DEVICE_KIND

    @cached_property
    def order(self) -> Ints:
        """All rows by start, then track, then depth."""
        track, depth, scratch = self.lanes.track, self.nesting.depth, self.log.scratch
        rows = scratch.numbers(len(self.columns))
        return sort_rows(self.start_ns, rows, scratch, lambda mine: (track[mine], depth[mine]))

    def find(self, mask: Mask) -> Iterator[Ints]:
        """Yield the rows for which a mask holds, block by block."""
        for rows in blocks(len(mask)):
            yield np.flatnonzero(mask[rows]) + rows.start
            self.release()

    def sort(self, mask: Mask) -> Ints:
        """Return the rows for which a mask holds, by start."""
        return sort_rows(self.start_ns, self.log.scratch.where(mask), self.log.scratch)

    def take(self, column: Ints, rows: Ints) -> Ints:
        """Return the values of some rows, from disk if they are many."""
        found = self.log.scratch.column()
        for block in blocks(len(rows), _TAKEN_ROWS):
            found.append(column[rows[block]])
            self.release()
        return found.finish()

    def release(self) -> None:
        """Let go of memory that can be had again from disk; called between the stages of the work."""
        self.log.scratch.release()


def build_trace(log: Log) -> Trace:
    """Find out kind, track, nesting and links of every slice."""
    columns = log.columns()
    kinds = classify(columns, log)
    arguments = Arguments(log.args)
    lanes = assign_lanes(columns, kinds, arguments, log)
    end_ns, whole = _add_up(columns, log)
    spans = Spans(columns.start_ns, columns.duration_ns, (kinds.kind, columns.external), _ROUNDING_NS if whole else 0)
    nesting = nest(lanes.track, spans, log.scratch)
    owner = find_owners(nesting.parent, kinds.mask(*HOST_WORK), log.scratch)
    caller = find_owners(owner, kinds.mask(*OPERATORS), log.scratch)
    links = link(columns, kinds, (caller, owner), log.scratch)
    return Trace(log, columns, kinds, arguments, lanes, nesting, owner, caller, links, end_ns)


def _add_up(columns: Columns, log: Log) -> tuple[Ints, bool]:
    """Return the ends of the slices, and whether all times are whole microseconds."""
    ends, whole = log.scratch.column(), True
    for rows in blocks(len(columns)):
        start_ns, duration_ns = columns.start_ns[rows], columns.duration_ns[rows]
        ends.append(start_ns + duration_ns)
        whole = whole and not (start_ns % 1000).any() and not (duration_ns % 1000).any()
    return ends.finish(), whole


__all__ = ["Kind", "Trace", "build_trace"]
