"""Sum operators into their table, without counting anything twice. Annotations only name work and have no row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
import pyarrow as pa

from collector.format import parts
from collector.format.arrays import from_numbers
from collector.format.intervals import Floats, Ints, Mask
from collector.format.phases import PHASE_NAMES
from collector.format.words import NO_OPERATOR
from collector.traces.call import estimate_work, find_formula
from collector.traces.families import find_family
from collector.traces.kineto.classify.kinds import Kind
from collector.traces.kineto.classify.nesting import find_owners
from collector.traces.kineto.classify.trace import Trace
from collector.traces.kineto.decode.numbering import Numbers, group, total
from collector.traces.kineto.tables.context import Reading, encode, split_batches


@dataclass(frozen=True)
class CallSums:
    """The figures of each call of an operator; every column has an entry per row of the trace.

    `callees_ns` is the host time of operators and runtime calls nested directly in the call, which PyTorch counts as
    callees from 1.8 on. Operations and least bytes are NaN if unknown, and exclude nested calls.
    """

    callees_ns: Ints
    device_self_ns: Ints
    device_total_ns: Ints
    flops: Floats
    moved_bytes: Floats


def sum_calls(trace: Trace) -> CallSums:
    own, whole = _sum_device(trace)
    _clear_nested(trace, whole)
    callees_ns = trace.log.scratch.array(len(trace.columns), 0)
    for rows in trace.find((trace.is_operator | (trace.kind == Kind.RUNTIME)) & (trace.caller >= 0)):
        np.add.at(callees_ns, trace.caller[rows], trace.columns.duration_ns[rows])
    return CallSums(callees_ns, own, whole, *_sum_work(trace))


def _sum_device(trace: Trace) -> tuple[Ints, Ints]:
    """Return two columns of ns of device work: launched by the call itself, and including nested calls."""
    own, whole = (trace.log.scratch.array(len(trace.columns), 0) for _ in range(2))
    for device in trace.find(trace.is_device_work):
        call = trace.operator[device]
        called = (call >= 0) & trace.is_operator[call]
        call, length = call[called], trace.columns.duration_ns[device[called]]
        np.add.at(own, call, length)
        while len(call):
            np.add.at(whole, call, length)
            call = trace.caller[call]
            call, length = call[call >= 0], length[call >= 0]
    return own, whole


def _clear_nested(trace: Trace, whole: Ints) -> None:
    """Set the device time of a call inside a call of the same name to 0: the outer call includes it already."""
    name = trace.columns.name
    for rest in trace.find(trace.is_operator & (trace.caller >= 0)):
        above = trace.caller[rest]
        while len(rest):
            same = name[above] == name[rest]
            whole[rest[same]] = 0
            rest, above = rest[~same], trace.caller[above[~same]]
            rest, above = rest[above >= 0], above[above >= 0]


def _sum_work(trace: Trace) -> tuple[Floats, Floats]:
    """Return operations and least bytes of each call without nested calls: linear has none beside its addmm."""
    known, work = _estimate_calls(trace)
    inner = [trace.log.scratch.floats(len(trace.columns)) for _ in range(2)]
    around = find_owners(trace.caller, known, trace.log.scratch)
    for rows in trace.find(known & (around >= 0)):
        for values, sums in zip(work, inner, strict=True):
            np.add.at(sums, around[rows], values[rows])
    for rows in trace.find(known):
        for values, sums in zip(work, inner, strict=True):
            values[rows] = np.maximum(values[rows] - sums[rows], 0.0)
    return work


def _estimate_calls(trace: Trace) -> tuple[Mask, tuple[Floats, Floats]]:
    """Return a mask of the calls with an estimate, their operations and least bytes. Equal calls are estimated once."""
    arguments, width = trace.arguments, len(trace.arguments)
    shapes, values = arguments.texts("Input Dims", "Input dims"), arguments.texts("Concrete Inputs")
    dtypes = arguments.texts("Input type")

    @cache
    def estimate(key: int) -> tuple[float, float]:
        name, code = divmod(key, width)
        work = estimate_work(trace.names[name], shapes[code], dtypes[code], values[code])
        return (np.nan, np.nan) if work is None else (work.flops, work.moved_bytes)

    flops, moved = (trace.log.scratch.floats(len(trace.columns), np.nan) for _ in range(2))
    known = np.zeros(len(trace.columns), bool)
    for rows in trace.find(trace.find_named(find_formula) & (trace.kind == Kind.OPERATOR)):
        keys, place = np.unique(trace.columns.name[rows] * width + trace.columns.args[rows], return_inverse=True)
        flops[rows], moved[rows] = np.array([estimate(key) for key in keys.tolist()]).reshape(-1, 2)[place].T
        known[rows] = ~np.isnan(flops[rows])
    return known, (flops, moved)


LAUNCHED_BY_NONE = f"{NO_OPERATOR}: launched outside of all)"
LAUNCH_NOT_RECORDED = f"{NO_OPERATOR}: launched before the trace began)"
"""The names of rows for device work outside all operators. Such rows have no calls."""


_Told = dict[str, tuple[Ints, Callable[[int], str | None]]]
"""The number of a text for each row, -1 for none, and a function from a number to its text; by column."""


def stream_operators(reading: Reading) -> Iterator[pa.RecordBatch]:
    """Build the table `operators`: calls by step, name, phase, module, shapes, dtypes and call stack. Steps come in
    order.

    The device work that no operator launched comes last.
    """
    trace, sums = reading.trace, sum_calls(reading.trace)
    arguments = trace.arguments
    texts = {
        # Call stacks and modules are taken from the arguments, where old files have them.
        "module": arguments.texts("Module Hierarchy"),
        "input_shapes": arguments.texts("Input Dims", "Input dims"),
        "input_dtypes": arguments.texts("Input type"),
        "call_stack": [text.replace(";", "\n") if text else None for text in arguments.texts("Call stack")],
    }
    told = {column: _number_texts(found) for column, found in texts.items()}
    calls = trace.log.scratch.where(trace.is_operator)
    step_row, name = trace.take(reading.step_row, calls), trace.take(trace.columns.name, calls)
    for places in split_batches(step_row, name, len(trace.names), trace.log.scratch):
        yield from _build_batch(reading, sums, told, calls[places]).to_batches()
    yield from _build_unowned(reading).to_batches()


def _build_batch(reading: Reading, sums: CallSums, told: _Told, rows: Ints) -> pa.Table:
    trace, tree = reading.trace, reading.tree
    args, name, step_row = trace.columns.args[rows], trace.columns.name[rows], reading.step_row[rows]
    texts = {column: (numbers[args], find_text) for column, (numbers, find_text) in told.items()}
    if len(tree.frames):
        texts["call_stack"] = tree.stack[rows], tree.call_stack
    if len(tree.modules):
        texts["module"] = tree.module[rows], tree.module_path
    phase, length = reading.phases.locate(trace.start_ns[rows]), trace.columns.duration_ns[rows]
    first, groups = group(step_row, name, phase, *(numbers for numbers, _ in texts.values()))
    count = len(first)
    return parts.build_table(
        "operators",
        {
            "step": reading.number_steps(step_row[first]),
            "name": encode(name[first], trace.find_name),
            "type": encode(name[first], lambda code: find_family(trace.names[code])),
            "phase": encode(phase[first], PHASE_NAMES.__getitem__),
            **{column: encode(numbers[first], find_text) for column, (numbers, find_text) in texts.items()},
            "count": np.bincount(groups, minlength=count).astype(np.int64),
            "total_ns": total(length, groups, count),
            # Files with times in whole microseconds round children up. Children may thus seem longer than their parent.
            "self_ns": total(np.maximum(length - sums.callees_ns[rows], 0), groups, count),
            "device_total_ns": total(sums.device_total_ns[rows], groups, count),
            "device_self_ns": total(sums.device_self_ns[rows], groups, count),
            "flops": _total_known(sums.flops[rows], groups, count),
            "moved_bytes": _total_known(sums.moved_bytes[rows], groups, count),
        },
    )


def _total_known(values: Floats, groups: Ints, count: int) -> pa.Array:
    """Return the sum of the known values in each group, null for a group without known values."""
    known = ~np.isnan(values)
    sums = np.bincount(groups[known], weights=values[known], minlength=count)
    return from_numbers(sums, np.bincount(groups[known], minlength=count) == 0)


def _build_unowned(reading: Reading) -> pa.Table:
    """Build rows for the device work that no operator launched, so that the table includes all device work."""
    trace, names = reading.trace, (LAUNCH_NOT_RECORDED, LAUNCHED_BY_NONE)
    # The first row is for work outside all steps.
    sums = np.zeros((len(reading.steps) + 1, len(names)), np.int64)
    found = np.zeros(sums.shape, bool)
    for device in trace.find(trace.is_device_work):
        operator = trace.operator[device]
        device = device[(operator < 0) | ~trace.is_operator[operator]]
        cell = reading.step_row[device] + 1, (trace.launch[device] >= 0).astype(np.int64)
        np.add.at(sums, cell, trace.columns.duration_ns[device])
        found[cell] = True
    row, code = np.nonzero(found)
    nothing = np.zeros(len(row), np.int64)
    return parts.build_table(
        "operators",
        {
            "step": reading.number_steps(row - 1),
            "name": [names[one] for one in code.tolist()],
            "type": ["other"] * len(row),
            **dict.fromkeys(("count", "total_ns", "self_ns"), nothing),
            **dict.fromkeys(("device_total_ns", "device_self_ns"), sums[found]),
        },
    )


def _number_texts(texts: list[str | None]) -> tuple[Ints, Callable[[int], str | None]]:
    """Return the number of each text, -1 for None, and a function that maps a number to its text."""
    numbers = Numbers()
    codes = np.array([-1 if text is None else numbers[text] for text in texts], np.int64)
    return codes, list(numbers).__getitem__
