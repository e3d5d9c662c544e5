"""Sum device work into the table of kernels, and list collectives."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from collector.format import parts
from collector.format.arrays import from_numbers
from collector.format.arrow_schemas import arrow_schema
from collector.traces.kineto.batches import split_batches
from collector.traces.kineto.classify import Kind
from collector.traces.kineto.clock import Ints
from collector.traces.kineto.context import Reading
from collector.traces.kineto.intern import Numbers
from collector.traces.kineto.messages import Messages
from collector.traces.kineto.model import Trace
from collector.traces.kineto.tables import encode, group, nullable, small, total
from collector.traces.tensor_cores import uses_tensor_cores

# A kernel stands among many slices of the host, so that a batch of kernels is looked up in a long stretch of the trace.
_BATCH_ROWS = 1 << 15
_ALL_RANKS = "0"
"""The name that torch gives to the group of all ranks."""
_NUMBER = re.compile(r"\d{1,9}")
_MOST_SHOWN = 4
_LONGEST_LIST = 10_000


def stream_kernels(reading: Reading) -> Iterator[pa.RecordBatch]:
    """Build the table `kernels`: kernels by step, name, operator, device, stream and launch shape; steps in order."""
    trace = reading.trace
    rows = trace.log.scratch.where(trace.kinds.mask(Kind.KERNEL, Kind.COLLECTIVE))
    step_row, name = trace.take(reading.step_row, rows), trace.take(trace.columns.name, rows)
    launches = _Launches(reading)
    for places in split_batches(step_row, name, len(trace.names), trace.log.scratch, _BATCH_ROWS):
        yield from _build_kernels(reading, launches, rows[places]).to_batches()
        trace.release()


def _build_kernels(reading: Reading, launches: _Launches, rows: Ints) -> pa.Table:
    trace = reading.trace
    launch = trace.take(trace.links.operator, rows)
    operator = np.where(launch >= 0, trace.take(trace.columns.name, launch), -1)
    columns = trace.columns.name, trace.columns.args, trace.columns.duration_ns
    name, args, length = (trace.take(column, rows) for column in columns)
    columns = trace.lanes.device, trace.lanes.stream, reading.step_row
    device, stream, step_row = (trace.take(column, rows) for column in columns)
    collective = trace.kinds.kind[rows] == Kind.COLLECTIVE
    first, groups = group(step_row, name, operator, device, stream, launches.shape[args])
    count = len(first)
    step, outside = reading.number_steps(step_row[first])
    shortest = np.full(count, np.iinfo(np.int64).max)
    longest = np.zeros(count, np.int64)
    np.minimum.at(shortest, groups, length)
    np.maximum.at(longest, groups, length)
    return parts.build_table(
        "kernels",
        {
            "step": nullable(step, outside),
            "name": encode(name[first], trace.names),
            "operator": encode(operator[first], trace.names),
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
    """How kernels were launched, by the number of their arguments; `tensor` says which names use tensor cores.

    `shape` numbers what is shown of a launch, so that kernels which differ in nothing else are one row.
    """

    def __init__(self, reading: Reading) -> None:
        arguments = reading.trace.arguments
        self.tensor = np.array([uses_tensor_cores(text) for text in reading.trace.names], bool)
        self.shape = _number_shapes(reading)
        self._grid, self._block = arguments.texts("grid"), arguments.texts("block")
        self._registers = arguments.integers("registers per thread")
        self._shared_bytes = arguments.integers("shared memory")
        self._occupancy_frac = arguments.floats("est. achieved occupancy %") / 100.0
        self._blocks = arguments.floats("blocks per SM")

    def describe(self, args: Ints) -> dict[str, object]:
        """Return columns of the table for these arguments."""
        occupancy_frac, blocks = self._occupancy_frac[args], self._blocks[args]
        return {
            "grid": encode(args, self._grid),
            "block": encode(args, self._block),
            "registers": nullable(self._registers[args]),
            "shared_bytes": nullable(self._shared_bytes[args]),
            "occupancy_frac": from_numbers(occupancy_frac, np.isnan(occupancy_frac)),
            "blocks_per_sm": from_numbers(blocks, np.isnan(blocks)),
        }


def _number_shapes(reading: Reading) -> Ints:
    keys = ("grid", "block", "registers per thread", "shared memory", "est. achieved occupancy %", "blocks per SM")
    numbers = Numbers()
    entries = reading.trace.arguments.details.pick(keys)
    return np.array([numbers[tuple(map(bytes, entry))] for entry in entries], np.int64)


def build_collectives(reading: Reading) -> pa.Table:
    """Build the table `collectives`: one row per kernel of a collective, or per host span where there is no kernel."""
    trace = reading.trace
    rows = np.flatnonzero(trace.kinds.mask(Kind.COLLECTIVE, Kind.COMMUNICATION))
    if not len(rows):
        return pa.Table.from_batches([], arrow_schema("collectives"))
    rows = rows[np.argsort(trace.start_ns[rows], kind="stable")]
    messages = Messages(trace, rows)
    groups = _name_groups(trace, trace.columns.args[rows])
    step, outside = reading.number_steps(reading.step_row[rows])
    return parts.build_table(
        "collectives",
        {
            "step": nullable(step, outside),
            "name": messages.names,
            "group": groups,
            "index": _number_in_group(groups, messages.sequences.tolist()),
            "start_ns": reading.to_run(trace.start_ns[rows]),
            "duration_ns": trace.columns.duration_ns[rows],
            "bytes": nullable(messages.sizes()),
            "dtype": messages.dtypes,
            "group_size": nullable(small(messages.group_sizes)),
            "on_device": trace.kinds.kind[rows] == Kind.COLLECTIVE,
        },
    )


def _name_groups(trace: Trace, args: Ints) -> list[str]:
    """Name the groups as the trace does, but for that of all ranks with their ranks.

    Groups that part the job, such as those of tensor parallelism, may have one name on all ranks (`split_group`).
    """
    names = _pick(trace.arguments.texts("Process Group Name", "Comms Id"), args)
    members = _pick(trace.arguments.texts("Process Group Ranks"), args)
    return [_name_group(name or "", ranks or "") for name, ranks in zip(names, members, strict=True)]


def _name_group(name: str, ranks: str) -> str:
    numbers = _NUMBER.findall(ranks[:_LONGEST_LIST])
    if name in ("", _ALL_RANKS) or not numbers:
        return name
    shown = [*numbers[:_MOST_SHOWN], "…", numbers[-1]] if len(numbers) > _MOST_SHOWN + 1 else numbers
    return f"{name} [{', '.join(shown)}]"


def _pick(texts: list[str | None], args: Ints) -> list[str | None]:
    return [texts[code] for code in args.tolist()]


def _number_in_group(groups: list[str], sequences: list[int]) -> list[int]:
    """Return the numbers that the library gave the calls of a group, else how many of it came before in the trace."""
    untold = {name for name, sequence in zip(groups, sequences, strict=True) if sequence < 0}
    twice = Counter(pair for pair in zip(groups, sequences, strict=True) if pair[0] not in untold)
    untold |= {name for (name, _), count in twice.items() if count > 1}
    seen: dict[str, int] = {}
    indices = []
    for name, sequence in zip(groups, sequences, strict=True):
        count = seen[name] = seen.get(name, -1) + 1
        indices.append(count if name in untold else sequence)
    return indices
