"""Link device work to the host call that launched it and to the operator that the call stood in.

May import numpy and its neighbours in this room.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from collector.traces.kineto.classify import DEVICE_WORK, HOST_WORK, Kind, Kinds
from collector.traces.kineto.clock import Ints
from collector.traces.kineto.collect import Columns
from collector.traces.kineto.scratch import Scratch


@dataclass(frozen=True)
class Links:
    """Row numbers, -1 for none. `launch` is set for device work only, `operator` for device work and runtime calls."""

    launch: Ints
    operator: Ints


def link(columns: Columns, kinds: Kinds, around: tuple[Ints, Ints], scratch: Scratch) -> Links:
    """Link by correlation; where a launch stands in no operator, by the external id that operators hand down.

    `around` are the operator and the host work around each slice; what no operator launched belongs to the annotation
    that it stands in.

    A flow of the file (`ac2g`) says the same as the correlation, and old files and CUDA graphs have no flows.
    """
    device = np.flatnonzero(kinds.mask(*DEVICE_WORK, Kind.SYNC))
    calls = np.flatnonzero(kinds.mask(Kind.RUNTIME))
    launch = scratch.array(len(columns), -1)
    launch[device] = _look_up(columns.correlation, calls, columns.correlation[device])
    operator = scratch.array(len(columns), -1)
    operator[calls] = _prefer(around, calls)
    launched = device[launch[device] >= 0]
    operator[launched] = _prefer(around, launch[launched])
    scratch.release()
    work = np.flatnonzero(kinds.mask(*HOST_WORK))
    for rows in (device, calls):
        orphans = rows[operator[rows] < 0]
        operator[orphans] = _look_up(columns.external, work, columns.external[orphans])
        scratch.release()
    return Links(launch, operator)


def _prefer(around: tuple[Ints, Ints], rows: Ints) -> Ints:
    first, second = around
    return np.where(first[rows] >= 0, first[rows], second[rows])


def _look_up(ids: Ints, rows: Ints, wanted: Ints) -> Ints:
    """Return for each wanted id the first of the rows that has it, -1 for none. Ids of 0 and below link nothing."""
    if not len(rows):
        return np.full(len(wanted), -1, np.int64)
    order = rows[np.argsort(ids[rows], kind="stable")]
    at = np.searchsorted(ids[order], wanted)
    at = np.minimum(at, len(order) - 1)
    return np.where((ids[order[at]] == wanted) & (wanted > 0), order[at], -1)
