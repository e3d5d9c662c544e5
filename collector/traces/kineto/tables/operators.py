"""Sum operators into their table. Annotations only name what operators do, and are slices only."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from collector.format import parts
from collector.format.arrays import from_numbers
from collector.format.intervals import Floats, Ints
from collector.format.phases import PHASE_NAMES
from collector.format.words import NO_OPERATOR
from collector.traces.families import find_family
from collector.traces.kineto.decode.numbering import Numbers, compress, group, total
from collector.traces.kineto.tables.calls import CallSums, sum_calls
from collector.traces.kineto.tables.columns import encode, split_batches
from collector.traces.kineto.tables.context import Reading

LAUNCHED_BY_NONE = f"{NO_OPERATOR}: launched outside of all)"
LAUNCH_NOT_RECORDED = f"{NO_OPERATOR}: launched before the trace began)"
"""Rows for device work that stands in no operator. They count no call."""


_Numbered = tuple[Ints, list[str]]
"""Numbers of texts, and the texts."""


def stream_operators(reading: Reading) -> Iterator[pa.RecordBatch]:
    """Build the table `operators`: calls by step, name, phase, module, shapes, dtypes and call stack; steps in order."""
    sums = sum_calls(reading)
    arguments = reading.trace.arguments
    lines = [text.replace(";", "\n") if text else None for text in arguments.texts("Call stack")]
    # Call stacks and modules are those of the arguments, as old files have them.
    shapes, dtypes = arguments.texts("Input Dims", "Input dims"), arguments.texts("Input type")
    texts = [_number_texts(found) for found in (shapes, dtypes, lines, arguments.texts("Module Hierarchy"))]
    trace = reading.trace
    for places in split_batches(sums.step_row, sums.name, len(trace.names), trace.log.scratch):
        yield from _build_batch(reading, sums, texts, places).to_batches()
    yield from _build_unowned(reading).to_batches()


def _build_batch(reading: Reading, sums: CallSums, texts: list[_Numbered], places: Ints) -> pa.Table:
    trace = reading.trace
    rows = sums.calls.rows[places]
    args, name, step_row = trace.columns.args[rows], sums.name[places], sums.step_row[places]
    shapes, dtypes, stacks, modules = ((codes[args], known) for codes, known in texts)
    tree = reading.tree
    if len(tree.frames):
        stacks = _number_paths(tree.stack[rows], tree.call_stack)
    if len(tree.modules):
        modules = _number_paths(tree.module[rows], tree.module_path)
    phase = reading.phases.locate(trace.start_ns[rows])
    first, groups = group(step_row, name, phase, modules[0], shapes[0], dtypes[0], stacks[0])
    count = len(first)
    return parts.build_table(
        "operators",
        {
            "step": reading.number_steps(step_row[first]),
            "name": encode(name[first], trace.names),
            "type": _find_families(reading, name[first]),
            "phase": encode(phase[first], PHASE_NAMES),
            "module": encode(modules[0][first], modules[1]),
            "input_shapes": encode(shapes[0][first], shapes[1]),
            "input_dtypes": encode(dtypes[0][first], dtypes[1]),
            "call_stack": encode(stacks[0][first], stacks[1]),
            "count": np.bincount(groups, minlength=count).astype(np.int64),
            "total_ns": total(trace.columns.duration_ns[rows], groups, count),
            "self_ns": total(sums.self_ns[places], groups, count),
            "device_total_ns": total(sums.device_total_ns[places], groups, count),
            "device_self_ns": total(sums.device_self_ns[places], groups, count),
            "flops": _total_known(sums.flops[places], groups, count),
            "moved_bytes": _total_known(sums.moved_bytes[places], groups, count),
        },
    )


def _total_known(values: Floats, groups: Ints, count: int) -> pa.Array:
    """Return the sum of each group, null for one of which nothing is known."""
    known = ~np.isnan(values)
    sums = np.bincount(groups[known], weights=values[known], minlength=count)
    return from_numbers(sums, np.bincount(groups[known], minlength=count) == 0)


def _find_families(reading: Reading, name: Ints) -> pa.DictionaryArray:
    keys, compact = compress(name)
    families = [find_family(reading.trace.names[key]) for key in keys.tolist()]
    return encode(compact, families)


def _build_unowned(reading: Reading) -> pa.Table:
    """Build the rows of device work that no operator launched, so that operators hold all the work of the devices."""
    trace = reading.trace
    sums: dict[tuple[int, str], int] = defaultdict(int)
    for device in trace.find(trace.is_device_work):
        operator = trace.links.operator[device]
        device = device[(operator < 0) | ~trace.is_operator[operator]]
        is_known = trace.links.launch[device] >= 0
        columns = is_known.tolist(), reading.step_row[device].tolist(), trace.columns.duration_ns[device].tolist()
        for known, row, length_ns in zip(*columns, strict=True):
            sums[row, LAUNCHED_BY_NONE if known else LAUNCH_NOT_RECORDED] += length_ns
    keys = sorted(sums)
    own = np.array([sums[key] for key in keys], np.int64)
    nothing = np.zeros(len(keys), np.int64)
    return parts.build_table(
        "operators",
        {
            "step": reading.number_steps(np.array([row for row, _ in keys], np.int64)),
            "name": [name for _, name in keys],
            "type": ["other"] * len(keys),
            "count": nothing,
            "total_ns": nothing,
            "self_ns": nothing,
            "device_total_ns": own,
            "device_self_ns": own,
        },
    )


def _number_texts(texts: list[str | None]) -> _Numbered:
    """Number the different texts of arguments. Return the number for each arguments, and the texts."""
    numbers = Numbers()
    codes = np.array([-1 if text is None else numbers[text] for text in texts], np.int64)
    return codes, list(numbers)


def _number_paths(codes: Ints, describe: Callable[[int], str]) -> _Numbered:
    used, compact = compress(codes)
    texts = [describe(code) if code >= 0 else "" for code in used.tolist()]
    return np.where(codes >= 0, compact, -1), texts
