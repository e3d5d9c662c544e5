"""Link device work to the host call that launched it and to the operator that the call stood in."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from collector.traces.kineto.classify import DEVICE_WORK, HOST_WORK, Kind, Kinds
from collector.traces.kineto.clock import Ints
from collector.traces.kineto.digest import Columns
from collector.traces.kineto.scratch import Scratch, blocks
from collector.traces.kineto.sort import sort_rows


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
    is_device, is_call = kinds.mask(*DEVICE_WORK, Kind.SYNC), kinds.mask(Kind.RUNTIME)
    launch, operator = scratch.array(len(columns), -1), scratch.array(len(columns), -1)
    calls = _Index(columns.correlation, is_call, scratch)
    work = _Index(columns.external, kinds.mask(*HOST_WORK), scratch)
    for block in blocks(len(columns)):
        rows = np.flatnonzero(is_device[block] | is_call[block]) + block.start
        launched = calls.find(columns.correlation[rows])
        launch[rows] = np.where(is_device[rows], launched, -1)
        call = np.where(is_device[rows], launched, rows)
        around_call = np.where(around[0][call] >= 0, around[0][call], around[1][call])
        found = np.where(call >= 0, around_call, -1)
        operator[rows] = np.where(found >= 0, found, work.find(columns.external[rows]))
        scratch.release()
    return Links(launch, operator)


class _Index:
    """Finds the first of the rows for which a mask holds that has an id. Ids of 0 and below link nothing."""

    def __init__(self, ids: Ints, mask: npt.NDArray[np.bool_], scratch: Scratch) -> None:
        rows, sorted_ids = scratch.column(), scratch.column()
        for block in blocks(len(ids)):
            rows.append(np.flatnonzero(mask[block] & (ids[block] > 0)) + block.start)
        self._rows = sort_rows(ids, rows.finish(), scratch)
        for block in blocks(len(self._rows)):
            sorted_ids.append(ids[self._rows[block]])
            scratch.release()
        self._ids = sorted_ids.finish()

    def find(self, wanted: Ints) -> Ints:
        """Return the row for each wanted id, -1 for none."""
        if not len(self._ids):
            return np.full(len(wanted), -1, np.int64)
        at = np.minimum(np.searchsorted(self._ids, wanted), len(self._ids) - 1)
        return np.where(self._ids[at] == wanted, self._rows[at], -1)
