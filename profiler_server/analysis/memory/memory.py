"""The memory of a device in the detailed windows: the curve, the change by each operator, and the live blocks at a
moment.

Blocks that were allocated before a window have no allocation in the table. So allocated memory without a block of the
window counts as held from before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from collector.format.intervals import Ints, Mask
from collector.format.run import RankRun
from collector.format.schema.manifest import Window
from collector.format.steps import read_integers
from profiler_server.analysis.tables import read_rows

HOST = -1
MOST_EVENTS = 2_000_000
NO_OPERATOR = "(outside of an operator)"
_COLUMNS = ("start_ns", "step", "allocated_bytes", "reserved_bytes", "change_bytes", "address")
_OF_TENSOR = ("shape", "dtype", "module")


Words = np.ndarray[Any, np.dtype[np.object_]]


@dataclass(frozen=True)
class MemoryTrace:
    """The allocations and releases of one device's memory in time order, with the memory in use after each.
    `change_bytes` is positive for an allocation, negative for a release. `operator` is an index in `operators`.
    Unknown numbers are -1. `shape`, `dtype` and `module` of each event's tensor are None where the trace lacks them.
    """

    device: int
    start_ns: Ints
    step: Ints
    allocated_bytes: Ints
    reserved_bytes: Ints
    change_bytes: Ints
    address: Ints
    operator: Ints
    operators: tuple[str, ...]
    shape: Words
    dtype: Words
    module: Words

    def __len__(self) -> int:
        return len(self.start_ns)

    def pick(self, rows: Mask) -> MemoryTrace:
        columns = {name: getattr(self, name)[rows] for name in (*_COLUMNS, "operator", *_OF_TENSOR)}
        return replace(self, **columns)

    @cached_property
    def peak_row(self) -> int:
        return int(np.argmax(self.allocated_bytes))

    @property
    def peak_bytes(self) -> int:
        return int(self.allocated_bytes[self.peak_row])

    @property
    def peak_reserved_bytes(self) -> int | None:
        known = int(self.reserved_bytes.max())
        return known if known > 0 else None

    @cached_property
    def has_addresses(self) -> bool:
        """Return whether the trace has addresses, which distinguish blocks. Without them (before PyTorch 1.11), the
        totals are missing, too.
        """
        return bool((self.address != -1).any())

    def name(self, row: int) -> str:
        return self.operators[int(self.operator[row])] if self.operator[row] >= 0 else NO_OPERATOR


@dataclass(frozen=True)
class OperatorChange:
    """The memory of an operator, summed over the detailed windows. `allocations` is the number of its allocations,
    `largest_bytes` the largest of them. `net_bytes` is `allocated_bytes` minus `released_bytes`."""

    operator: str
    allocations: int
    allocated_bytes: int
    released_bytes: int
    net_bytes: int
    largest_bytes: int


@dataclass(frozen=True)
class LiveBlock:
    """A block that was live at a moment, with the time and operator of its allocation. `step` is None outside of steps.

    `shape` and `dtype` of its tensor, and the allocating `module`, are None where the trace lacks them.
    """

    address: int
    size_bytes: int
    operator: str
    born_ns: int
    step: int | None
    shape: str | None
    dtype: str | None
    module: str | None


@dataclass(frozen=True)
class LiveMemory:
    """The live memory at `at_ns`, the time of an event. `blocks` are the largest blocks; `known_bytes` is the sum over
    all `count` known blocks. `step` is None outside of steps, `reserved_bytes` None if unknown.

    `before_bytes` is allocated memory without a known block: it was allocated before the window. Without addresses
    no block is known, and `allocated_bytes` is relative to the lowest level of the trace.
    """

    at_ns: int
    step: int | None
    allocated_bytes: int
    reserved_bytes: int | None
    known_bytes: int
    before_bytes: int
    count: int
    blocks: tuple[LiveBlock, ...]
    has_addresses: bool = True


def read_memory(rank: RankRun) -> tuple[MemoryTrace, ...]:
    """Read the events of each device, devices first, the host last. Raises as `RankRun.table` does."""
    table = rank.table("memory").slice(0, MOST_EVENTS).sort_by("start_ns")
    if not table.num_rows:
        return ()
    operators = table["operator"].combine_chunks()
    names = tuple(operators.dictionary.to_pylist())
    codes = np.asarray(operators.indices.fill_null(-1).to_numpy(zero_copy_only=False), np.int64)
    device = read_integers(table, "device", absent=-1)
    found = sorted(np.unique(device).tolist(), key=lambda number: (number == HOST, number))
    columns: dict[str, Any] = {name: read_integers(table, name, absent=-1) for name in _COLUMNS}
    columns |= {name: _read_words(table, name) for name in _OF_TENSOR}
    whole = MemoryTrace(device=HOST, operator=codes, operators=names, **columns)
    return tuple(_pick(whole, number, device == number) for number in found)


def _read_words(table: pa.Table, name: str) -> Words:
    if name not in table.column_names:
        return np.full(table.num_rows, None, object)
    return np.array(table[name].cast(pa.string()).to_pylist(), object)


def _pick(whole: MemoryTrace, device: int, mine: Mask) -> MemoryTrace:
    trace = replace(whole.pick(mine), device=device)
    if not trace.has_addresses:
        # Without totals the level is a sum of changes: what goes below nothing was there before the first of them.
        lowest = min(int(trace.allocated_bytes.min(initial=0)), 0)
        trace = replace(trace, allocated_bytes=trace.allocated_bytes - lowest)
    return _leave_out_maps(trace) if device == HOST else trace


def _leave_out_maps(trace: MemoryTrace) -> MemoryTrace:
    """Return the host's events without mapped shared memory, such as batches from workers.

    PyTorch reports mapped memory with a total of 0. The host has no caching allocator, so its reserved bytes are mapped
    memory as well. They are set to unknown.
    """
    kept = np.ones(len(trace), bool)
    for row in np.flatnonzero((trace.allocated_bytes == 0) & (trace.change_bytes != 0)).tolist():
        before = row - 1
        while before >= 0 and not kept[before]:
            before -= 1
        held = int(trace.allocated_bytes[before]) if before >= 0 else 0
        kept[row] = held + int(trace.change_bytes[row]) == 0
    if not kept.any():
        return trace
    return replace(trace.pick(kept), reserved_bytes=np.full(int(kept.sum()), -1))


def sum_operators(trace: MemoryTrace) -> tuple[OperatorChange, ...]:
    """Sum the changes by operator, largest allocation first."""
    found = []
    for code in np.unique(trace.operator).tolist():
        change = trace.change_bytes[trace.operator == code]
        taken = change[change > 0]
        found.append(
            OperatorChange(
                operator=trace.operators[code] if code >= 0 else NO_OPERATOR,
                allocations=len(taken),
                allocated_bytes=int(taken.sum()),
                released_bytes=int(-change[change < 0].sum()),
                net_bytes=int(change.sum()),
                largest_bytes=int(taken.max(initial=0)),
            )
        )
    return tuple(sorted(found, key=lambda entry: (-entry.allocated_bytes, -entry.released_bytes, entry.operator)))


def find_row(trace: MemoryTrace, at_ns: int) -> int:
    """Return the index of the event that is nearest to the time `at_ns`."""
    at = int(np.searchsorted(trace.start_ns, at_ns))
    if at == 0:
        return 0
    if at == len(trace):
        return at - 1
    return at if trace.start_ns[at] - at_ns < at_ns - trace.start_ns[at - 1] else at - 1


def list_live(trace: MemoryTrace, row: int, windows: Sequence[Window] = (), most: int = 50) -> LiveMemory:
    """Return the live memory after the event with index `row`. Its blocks are the `most` largest ones, the largest
    first.

    Only events of the same window are used, because a block from an earlier window may have been released between the
    windows.
    """
    begin = max((w.start_ns for w in windows if w.start_ns <= trace.start_ns[row]), default=int(trace.start_ns[0]))
    first = int(np.searchsorted(trace.start_ns, begin))
    rows = np.arange(first, row + 1)
    rows = rows[trace.change_bytes[rows] != 0]
    # The last event of each address decides whether its block is alive.
    _, last = np.unique(trace.address[rows][::-1], return_index=True)
    final = rows[::-1][last]
    alive = final[(trace.change_bytes[final] > 0) & (trace.address[final] != -1)]
    alive = alive[np.lexsort((trace.start_ns[alive], -trace.change_bytes[alive]))]
    known = int(trace.change_bytes[alive].sum())
    before = max(int(trace.allocated_bytes[row]) - known, 0) if trace.has_addresses else 0
    allocated, reserved = int(trace.allocated_bytes[row]), int(trace.reserved_bytes[row])
    return LiveMemory(
        at_ns=int(trace.start_ns[row]),
        step=_step(trace, row),
        allocated_bytes=allocated,
        reserved_bytes=reserved if reserved > 0 else None,
        known_bytes=known,
        before_bytes=before,
        count=len(alive),
        blocks=tuple(_describe(trace, int(at)) for at in alive[:most]),
        has_addresses=trace.has_addresses,
    )


def _describe(trace: MemoryTrace, row: int) -> LiveBlock:
    size = int(trace.change_bytes[row])
    return LiveBlock(
        *(int(trace.address[row]), size, trace.name(row), int(trace.start_ns[row]), _step(trace, row)),
        *(trace.shape[row], trace.dtype[row], trace.module[row]),
    )


def _step(trace: MemoryTrace, row: int) -> int | None:
    return int(trace.step[row]) if trace.step[row] >= 0 else None


def find_peak_share(rank: RankRun) -> float | None:
    """Return the largest share of a device's memory that was in use, over all devices; None if sizes or events are
    unknown.

    If recorded, memory that the caching allocator reserves counts as in use. Raises as `read_rows` does.
    """
    sizes = {entry.index: entry.memory_bytes for entry in rank.manifest.devices if entry.memory_bytes}
    rows = read_rows(rank, "memory", ("device", "allocated_bytes", "reserved_bytes"))
    rows = rows.filter(pc.greater_equal(rows["device"], 0))
    if not rows.num_rows:
        return None
    held = pc.max_element_wise(rows["allocated_bytes"], rows["reserved_bytes"])
    peaks = rows.append_column("held", held).group_by("device").aggregate([("held", "max")]).to_pylist()
    shares = [row["held_max"] / sizes[row["device"]] for row in peaks if row["device"] in sizes]
    return max(shares, default=None)
