"""A trace between decoding and tables: one row per slice, in the order of the file, with what was found out about it.

May import numpy and its neighbours in this room.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from collector.traces.kineto.arguments import Arguments
from collector.traces.kineto.classify import DEVICE_WORK, FIRST_DEVICE_KIND, HOST_WORK, OPERATORS, Kind, Kinds, classify
from collector.traces.kineto.clock import Ints
from collector.traces.kineto.collect import Columns, Log
from collector.traces.kineto.lanes import Lanes, assign_lanes
from collector.traces.kineto.links import Links, link
from collector.traces.kineto.nest import Nesting, find_owners, nest

_ROUNDING_NS = 1000
"""Files in whole microseconds round every start and every length, so a child may stick out by one."""

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

    @property
    def start_ns(self) -> Ints:
        return self.columns.start_ns

    @cached_property
    def end_ns(self) -> Ints:
        return self.columns.start_ns + self.columns.duration_ns

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
    def whole_microseconds(self) -> bool:
        return not (self.columns.start_ns % 1000).any() and not (self.columns.duration_ns % 1000).any()


def build_trace(log: Log) -> Trace:
    """Find out kind, track, nesting and links of every slice."""
    columns = log.columns()
    kinds = classify(columns, log)
    arguments = Arguments.read(log.args)
    lanes = assign_lanes(columns, kinds, arguments, log)
    whole = not (columns.start_ns % 1000).any() and not (columns.duration_ns % 1000).any()
    tie = kinds.kind.astype(np.int64) * (len(columns) + 1) + np.argsort(np.argsort(columns.external, kind="stable"))
    nesting = nest(lanes.track, columns.start_ns, columns.duration_ns, tie, _ROUNDING_NS if whole else 0)
    owner = find_owners(nesting, kinds.mask(*HOST_WORK))
    caller = find_owners(nesting, kinds.mask(*OPERATORS))
    # What no operator launched belongs to the annotation that it stands in.
    links = link(columns, kinds, np.where(caller >= 0, caller, owner))
    return Trace(log, columns, kinds, arguments, lanes, nesting, owner, caller, links)


__all__ = ["Kind", "Trace", "build_trace"]
