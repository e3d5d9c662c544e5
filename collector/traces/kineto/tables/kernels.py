"""Sum device work into the table of kernels, and list collectives with their message sizes."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from collector.format import parts
from collector.format.arrays import from_numbers
from collector.format.intervals import Ints
from collector.format.stored_files import arrow_schema
from collector.format.words import find_element_bytes
from collector.traces.call import read_call
from collector.traces.kineto.classify.kinds import Kind, find_collective, uses_tensor_cores
from collector.traces.kineto.classify.trace import Trace
from collector.traces.kineto.decode.numbering import Numbers, group, small, total
from collector.traces.kineto.tables.context import Reading, encode, nullable, split_batches

# A kernel stands among many slices of the host, so that a batch of kernels is looked up in a long stretch of the trace.
_BATCH_ROWS = 1 << 15


def stream_kernels(reading: Reading) -> Iterator[pa.RecordBatch]:
    """Build the table `kernels`: kernels by step, name, operator, device, stream and launch shape. Steps come in order."""
    trace = reading.trace
    rows = trace.log.scratch.where(trace.is_any(Kind.KERNEL, Kind.COLLECTIVE))
    step_row, name = trace.take(reading.step_row, rows), trace.take(trace.columns.name, rows)
    launches = _Launches(reading)
    for places in split_batches(step_row, name, len(trace.names), trace.log.scratch, _BATCH_ROWS):
        yield from _build_kernels(reading, launches, rows[places]).to_batches()


def _build_kernels(reading: Reading, launches: _Launches, rows: Ints) -> pa.Table:
    trace = reading.trace
    launch = trace.take(trace.operator, rows)
    operator = np.where(launch >= 0, trace.take(trace.columns.name, launch), -1)
    columns = trace.columns.name, trace.columns.args, trace.columns.duration_ns
    name, args, length = (trace.take(column, rows) for column in columns)
    columns = trace.lanes.device, trace.lanes.stream, reading.step_row
    device, stream, step_row = (trace.take(column, rows) for column in columns)
    collective = trace.kind[rows] == Kind.COLLECTIVE
    first, groups = group(step_row, name, operator, device, stream, launches.shape[args])
    count = len(first)
    shortest = np.full(count, np.iinfo(np.int64).max)
    longest = np.zeros(count, np.int64)
    np.minimum.at(shortest, groups, length)
    np.maximum.at(longest, groups, length)
    return parts.build_table(
        "kernels",
        {
            "step": reading.number_steps(step_row[first]),
            "name": encode(name[first], trace.find_name),
            "operator": encode(operator[first], trace.find_name),
            "device": device[first],
            "stream": stream[first],
            **launches.describe(args[first]),
            "tensor_core": launches.tensor[name[first]],
            "collective": collective[first],
            "count": np.bincount(groups, minlength=count).astype(np.int64),
            "total_ns": total(length, groups, count),
            "min_ns": shortest,
            "max_ns": longest,
        },
    )


class _Launches:
    """The launch data of kernels, looked up by the number of a kernel's arguments.

    `tensor` has an entry for each name: whether kernels of this name use tensor cores. `shape` numbers the different
    sets of launch data; kernels with the same number share a row.
    """

    def __init__(self, reading: Reading) -> None:
        arguments, numbers = reading.trace.arguments, Numbers()
        self.tensor = np.array([uses_tensor_cores(text) for text in reading.trace.names], bool)
        self.shape = numbers.number(tuple(map(bytes, entry)) for entry in arguments.pick(_LAUNCH_KEYS))
        grid, block, registers, shared, occupancy, blocks = _LAUNCH_KEYS
        self._texts = {"grid": arguments.texts(grid), "block": arguments.texts(block)}
        self._integers = {"registers": arguments.integers(registers), "shared_bytes": arguments.integers(shared)}
        self._floats = {
            "occupancy_frac": arguments.floats(occupancy) / 100.0,
            "blocks_per_sm": arguments.floats(blocks),
        }

    def describe(self, args: Ints) -> dict[str, object]:
        return {
            **{column: encode(args, texts.__getitem__) for column, texts in self._texts.items()},
            **{column: nullable(values[args]) for column, values in self._integers.items()},
            **{column: from_numbers(values[args], np.isnan(values[args])) for column, values in self._floats.items()},
        }


_LAUNCH_KEYS = ("grid", "block", "registers per thread", "shared memory", "est. achieved occupancy %", "blocks per SM")
_SPAN_PREFIXES = ("nccl:", "gloo:", "rccl:", "xccl:", "mpi:", "ucc:")
_ALL_RANKS = "0"
"""torch's name for the group of all ranks."""
_NUMBER = re.compile(r"\d{1,9}")
_MOST_SHOWN = 4
_LONGEST_LIST = 10_000


def build_collectives(reading: Reading) -> pa.Table:
    """Build the table `collectives`: one row per kernel of a collective, or per host span if there is no kernel."""
    trace = reading.trace
    rows = trace.sort(trace.is_any(Kind.COLLECTIVE, Kind.COMMUNICATION))
    if not len(rows):
        return pa.Table.from_batches([], arrow_schema("collectives"))
    messages = _Messages(trace, rows)
    groups = _name_groups(trace, trace.columns.args[rows])
    return parts.build_table(
        "collectives",
        {
            "step": reading.number_steps(reading.step_row[rows]),
            "name": messages.names,
            "group": groups,
            "index": _number_in_group(groups, messages.sequences.tolist()),
            "start_ns": reading.to_run(trace.start_ns[rows]),
            "duration_ns": trace.columns.duration_ns[rows],
            "bytes": nullable(messages.sizes()),
            "dtype": messages.dtypes,
            "group_size": nullable(small(messages.group_sizes)),
            "on_device": trace.kind[rows] == Kind.COLLECTIVE,
        },
    )


def _name_groups(trace: Trace, args: Ints) -> list[str]:
    """Return the name of each call's process group in the trace. Groups other than that of all ranks also show their
    ranks.

    Groups that divide the job, such as the groups of tensor parallelism, may have one name on all ranks
    (`split_group`).
    """
    names = trace.arguments.texts("Process Group Name", "Comms Id")
    members = trace.arguments.texts("Process Group Ranks")
    return [_name_group(names[code] or "", members[code] or "") for code in args.tolist()]


def _name_group(name: str, ranks: str) -> str:
    numbers = _NUMBER.findall(ranks[:_LONGEST_LIST])
    if name in ("", _ALL_RANKS) or not numbers:
        return name
    shown = [*numbers[:_MOST_SHOWN], "…", numbers[-1]] if len(numbers) > _MOST_SHOWN + 1 else numbers
    return f"{name} [{', '.join(shown)}]"


def _number_in_group(groups: list[str], sequences: list[int]) -> list[int]:
    """Return the trace's number of each call in its group. If one is missing or repeated, count the group from 0."""
    untold = {name for name, sequence in zip(groups, sequences, strict=True) if sequence < 0}
    twice = Counter(pair for pair in zip(groups, sequences, strict=True) if pair[0] not in untold)
    untold |= {name for (name, _), count in twice.items() if count > 1}
    seen: dict[str, int] = {}
    indices = []
    for name, sequence in zip(groups, sequences, strict=True):
        count = seen[name] = seen.get(name, -1) + 1
        indices.append(count if name in untold else sequence)
    return indices


class _Messages:
    """The collectives in some rows: kernels of collectives, or host spans. Every list has one entry per row.

    Newer traces record the message size of each kernel. Older traces have the shapes of the host span that launched the
    kernel.
    """

    def __init__(self, trace: Trace, rows: Ints) -> None:
        arguments = trace.arguments
        self._trace, self._rows = trace, rows
        at = np.where(trace.launch[rows] >= 0, trace.launch[rows], rows)
        self._around = [rows, trace.owner[at], trace.caller[at]]
        args = trace.columns.args[rows].tolist()
        given, dtypes = arguments.texts("Collective name"), arguments.texts("dtype")
        self.dtypes = [dtypes[code] for code in args]
        self.group_sizes = self._first(arguments.integers("Group size"))
        self.sequences = self._first(arguments.integers("Seq", "seq_num"))
        self.names = [given[code] or self._name(row) for row, code in enumerate(args)]
        self._elements = arguments.integers("In msg nelems"), arguments.integers("Out msg nelems")
        self._dims, self._types = arguments.texts("Input Dims", "Input dims"), arguments.texts("Input type")

    def sizes(self) -> Ints:
        """Return the bytes of each message, -1 if unknown.

        For a gather, this is the data that each rank has at the end; for a scatter, at the start. Bandwidths are
        computed from these sizes.
        """
        elements = np.maximum(*(self._first(values) for values in self._elements))
        found = []
        for row, (count, dtype) in enumerate(zip(elements.tolist(), self.dtypes, strict=True)):
            item_bytes = find_element_bytes(dtype or "")
            found.append(count * item_bytes if count >= 0 and item_bytes else self._measure_inputs(row))
        return np.array(found, np.int64)

    def _first(self, values: Ints) -> Ints:
        """Return for each row the first known value: the row's own, that of the host work around its launch, or that of
        the operator around this launch. -1 if none is known.
        """
        found = np.full(len(self._rows), -1, np.int64)
        for rows in reversed(self._around):
            own = np.where(rows >= 0, values[self._trace.columns.args[rows]], -1)
            found = np.where(own >= 0, own, found)
        return found

    def _list_around(self, row: int) -> Iterator[int]:
        return (int(rows[row]) for rows in self._around if rows[row] >= 0)

    def _name(self, row: int) -> str:
        """Return the name in the host span: the kernel of an all-to-all is named send and receive."""
        names = [self._trace.names[self._trace.columns.name[around]] for around in self._list_around(row)]
        for name in names:
            found = find_collective(name)
            if name.startswith(_SPAN_PREFIXES) and found != name:
                return found
        return find_collective(names[0])

    def _measure_inputs(self, row: int) -> int:
        for around in self._list_around(row):
            code = int(self._trace.columns.args[around])
            size = _sum_tensors(self._dims[code], self._types[code])
            if size > 0:
                gathers = self.names[row].replace("_", "").endswith("allgather")
                ranks = int(self.group_sizes[row])
                return size * ranks if gathers and ranks > 0 else -1 if gathers else size
        return -1


def _sum_tensors(dims: str | None, types: str | None) -> int:
    call = read_call(dims, types, None)
    known = zip(call.tensors, call.dtypes, strict=False) if call is not None else ()
    return sum(math.prod(shape) * (find_element_bytes(dtype) or 0) for shape, dtype in known if shape)
