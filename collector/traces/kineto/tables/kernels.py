"""Sum device work into the table of kernels."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from collector.format import parts
from collector.format.arrays import from_numbers
from collector.format.intervals import Ints
from collector.traces.kineto.classify.kernel_names import uses_tensor_cores
from collector.traces.kineto.classify.kinds import Kind
from collector.traces.kineto.decode.numbering import Numbers, group, total
from collector.traces.kineto.tables.columns import encode, nullable, split_batches
from collector.traces.kineto.tables.context import Reading

# A kernel stands among many slices of the host, so that a batch of kernels is looked up in a long stretch of the trace.
_BATCH_ROWS = 1 << 15


def stream_kernels(reading: Reading) -> Iterator[pa.RecordBatch]:
    """Build the table `kernels`: kernels by step, name, operator, device, stream and launch shape; steps in order."""
    trace = reading.trace
    rows = trace.log.scratch.where(trace.is_any(Kind.KERNEL, Kind.COLLECTIVE))
    step_row, name = trace.take(reading.step_row, rows), trace.take(trace.columns.name, rows)
    launches = _Launches(reading)
    for places in split_batches(step_row, name, len(trace.names), trace.log.scratch, _BATCH_ROWS):
        yield from _build_kernels(reading, launches, rows[places]).to_batches()


def _build_kernels(reading: Reading, launches: _Launches, rows: Ints) -> pa.Table:
    trace = reading.trace
    launch = trace.take(trace.links.operator, rows)
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
    entries = reading.trace.arguments.pick(keys)
    return np.array([numbers[tuple(map(bytes, entry))] for entry in entries], np.int64)
