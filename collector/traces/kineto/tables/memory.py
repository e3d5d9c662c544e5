"""Build the table of memory events, each with the operator running at that time and the tensor in the block."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa

from collector.format import parts
from collector.format.intervals import Ints
from collector.format.words import find_element_bytes
from collector.traces.call import Call, Shape, broadcast, read_call
from collector.traces.kineto.classify.trace import Trace
from collector.traces.kineto.decode.digest import ABSENT
from collector.traces.kineto.decode.events import NO_ID
from collector.traces.kineto.decode.numbering import LARGEST_SMALL
from collector.traces.kineto.tables.context import BATCH_ROWS, Reading, encode, find_place, nullable

_CPU = 0
_HOST = -1
_MOST_BYTES = 1 << 60
GRANULE_BYTES = 512
"""A device's caching allocator rounds blocks up to a multiple of this."""
_TYPES = {
    "0": "uint8", "1": "int8", "2": "int16", "3": "int32", "4": "int64", "5": "float16", "6": "float32", "7": "float64",
    "8": "complex32", "9": "complex64", "11": "bool", "15": "bfloat16", "unsigned char": "uint8", "signed char": "int8",
    "short": "int16", "short int": "int16", "int": "int32", "long": "int64", "long int": "int64",
    "c10::Half": "float16", "float": "float32", "double": "float64", "bool": "bool",
    "c10::complex<float>": "complex64", "c10::BFloat16": "bfloat16",
    "c10::Float8_e4m3fn": "float8_e4m3fn", "c10::Float8_e5m2": "float8_e5m2",
}  # fmt: skip
"""The Python name of a dtype, by its number or name in a trace."""
_MADE_BY_SIZE = {"aten::empty": (0, 1), "aten::empty_strided": (0, 2)}
"""The argument positions of size and type in these operators."""

Tensor = tuple[str, str]


@dataclass(frozen=True)
class Memory:
    """The allocator's events in time order: the columns of the log, and from them device and bytes allocated."""

    fields: dict[str, Ints]
    device: Ints
    allocated: Ints


def read_memory(trace: Trace) -> Memory:
    def keep(values: Ints) -> Ints:
        return trace.log.scratch.compute(len(values), lambda rows: values[rows])

    order = np.argsort(trace.log.memory["time_ns"], kind="stable")
    fields = {name: keep(values[order]) for name, values in trace.log.memory.items()}
    device = keep(find_devices(fields))
    return Memory(fields, device, keep(_sum_allocated(fields, device)))


def stream_memory(reading: Reading) -> Iterator[pa.RecordBatch]:
    """Build the table `memory` from the allocator's events; the host is device -1."""
    memory = read_memory(reading.trace)
    found = _Moments(reading.trace, memory.fields["thread"]), _Tensors(reading.trace)
    for rows in reading.trace.log.scratch.blocks(len(memory.device), BATCH_ROWS):
        yield from _build_memory(reading, memory, found, rows).to_batches()


def _build_memory(reading: Reading, memory: Memory, among: tuple[_Moments, _Tensors], rows: slice) -> pa.Table:
    moments, tensors = among
    found = {name: values[rows] for name, values in memory.fields.items()}
    times, reserved, address = found["time_ns"], found["reserved"], found["address"]
    operator = moments.find(times, found["thread"])
    names, tree = reading.trace.columns.name, reading.tree
    change = np.where(found["change"] == ABSENT, NO_ID, found["change"])
    held = [tensor or (None, None) for tensor in tensors.describe(operator, change)]
    return parts.build_table(
        "memory",
        {
            "start_ns": reading.to_run(times),
            "step": reading.number_steps(reading.steps.locate(times)),
            "device": memory.device[rows],
            "allocated_bytes": memory.allocated[rows],
            "reserved_bytes": nullable(np.maximum(reserved, 0), reserved == ABSENT),
            "change_bytes": change,
            "address": nullable(address, address == ABSENT),
            "operator": encode(np.where(operator >= 0, names[operator], -1), reading.trace.find_name),
            "shape": [shape for shape, _ in held],
            "dtype": [dtype for _, dtype in held],
            "module": encode(tree.find_module(np.where(change > 0, operator, -1)), tree.module_path),
        },
    )


def find_devices(memory: dict[str, Ints]) -> Ints:
    number = memory["device"]
    known = np.where((number >= 0) & (number <= LARGEST_SMALL), number, 0)
    return np.where(memory["device_type"] == _CPU, _HOST, known)


def _sum_allocated(memory: dict[str, Ints], device: Ints) -> Ints:
    """Return the allocated bytes after each event. Old files hold only changes, which are then summed per device."""
    change = np.clip(np.where(memory["change"] == ABSENT, NO_ID, memory["change"]), -_MOST_BYTES, _MOST_BYTES)
    allocated = memory["allocated"].copy()
    for number in np.unique(device).tolist():
        mine = np.flatnonzero(device == number)
        told = allocated[mine] != ABSENT
        # From each event that tells the total, the changes after it are added to that total.
        last = np.maximum.accumulate(np.where(told, np.arange(len(mine)), -1))
        exact, rough = change[mine], change[mine].astype(np.float64)
        # Only the sums of damaged files may exceed 64 bits.
        sums = np.cumsum(rough if np.abs(rough).sum() > _MOST_BYTES else exact)
        base = np.where(last >= 0, np.where(told, allocated[mine], 0)[last] - sums[last], 0)
        allocated[mine] = np.where(told, allocated[mine], np.clip(base + sums, -_MOST_BYTES, _MOST_BYTES))
    return np.clip(allocated, -_MOST_BYTES, _MOST_BYTES)


class _Moments:
    """A finder of the host slice that runs at a moment. `threads` are the threads to search, by number in the log."""

    def __init__(self, trace: Trace, threads: Ints) -> None:
        self._trace = trace
        self._rows = {thread: self._sort(thread) for thread in np.unique(threads).tolist()}

    def _sort(self, thread: int) -> Ints:
        trace = self._trace
        mine = trace.log.scratch.where(trace.is_host_work & (trace.columns.thread == thread))
        return trace.log.scratch.sort(trace.start_ns, mine, lambda rows: (-trace.columns.duration_ns[rows],))

    def find(self, times_ns: Ints, threads: Ints) -> Ints:
        """Return for each moment (in the file's own time) the innermost slice around it on its thread; -1 for none."""
        found = np.full(len(times_ns), -1, np.int64)
        for thread in np.unique(threads).tolist():
            asked = np.flatnonzero(threads == thread)
            found[asked] = self._find_around(self._rows[thread], times_ns[asked])
        return found

    def _find_around(self, rows: Ints, times_ns: Ints) -> Ints:
        """Return for each moment the innermost slice around it, -1 if there is none.

        The search begins at the last slice that began before the moment. From there it climbs from owner to owner,
        until an owner has not ended at the moment.
        """
        trace = self._trace
        if not len(rows):
            return np.full(len(times_ns), -1, np.int64)
        # Only rows that began since the first moment, and the last row before it, can be the answer.
        first, end = (
            find_place(trace.start_ns, rows, int(time_ns) + 1) for time_ns in (times_ns.min(), times_ns.max())
        )
        rows = rows[max(first - 1, 0) : end]
        at = np.searchsorted(trace.start_ns[rows], times_ns, side="right") - 1
        found: Ints = np.where(at >= 0, rows[np.maximum(at, 0)], -1) if len(rows) else np.full(len(times_ns), -1)
        while (over := (found >= 0) & (trace.end_ns[found] < times_ns)).any():
            found = np.where(over, trace.owner[found], found)
        return found


class _Tensors:
    """A finder of the shape and type of the tensors in allocated blocks.

    A trace records no tensor with an allocation, but the operator around the allocation has arguments. A tensor derived
    from these is accepted only if it is as large as the block.
    """

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        arguments = trace.arguments
        self._values, self._types = arguments.texts("Concrete Inputs"), arguments.texts("Input type")
        self._dims = arguments.texts("Input Dims", "Input dims")
        self._find = lru_cache(1 << 14)(self._guess)

    def describe(self, rows: Ints, sizes: Ints) -> list[Tensor | None]:
        columns = self._trace.columns
        safe = np.maximum(rows, 0)
        taken = ((rows >= 0) & (sizes > 0)).tolist()
        given = zip(taken, columns.name[safe].tolist(), columns.args[safe].tolist(), sizes.tolist(), strict=True)
        return [self._find(name, args, size) if known else None for known, name, args, size in given]

    def _guess(self, name: int, args: int, size: int) -> Tensor | None:
        call = read_call(self._dims[args] or "[]", self._types[args], self._values[args])
        found = None if call is None else _find_tensor(self._trace.names[name], call)
        if found is None:
            return None
        shape, dtype = found
        whole_bytes = math.prod(shape) * (find_element_bytes(dtype) or 0)
        return (json.dumps(shape), dtype) if whole_bytes <= size < whole_bytes + GRANULE_BYTES else None


def _find_tensor(name: str, call: Call) -> tuple[Shape, str] | None:
    """Return shape and type of an operator's result, None if its arguments are not sufficient."""
    if name in _MADE_BY_SIZE:
        at, of = _MADE_BY_SIZE[name]
        shape, code = call.integers(at), next(iter(call.values[of : of + 1]), "") or "6"
    else:
        shapes = [shape for shape in call.tensors if shape]
        shape = call.integers(1) if name == "aten::resize_" else _combine(name, shapes)
        code = next(iter(call.dtypes), "")
    known = _TYPES.get(code)
    return (shape, known) if shape is not None and known is not None and min(shape, default=0) >= 0 else None


def _combine(name: str, shapes: list[Shape]) -> Shape | None:
    """Return the shape of the result for input shapes: the matrix product's shape for products, else broadcast."""
    if name in ("aten::mm", "aten::bmm", "aten::addmm", "aten::baddbmm"):
        return (*shapes[-2][:-1], shapes[-1][-1]) if len(shapes) > 1 else None
    return broadcast(shapes) if shapes else None
