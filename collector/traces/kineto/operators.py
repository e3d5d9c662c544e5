"""Sum operators into their table. Annotations only name what operators do, and are slices only.

May import numpy, pyarrow, `collector.parts`, `collector.traces.families` and its neighbours in this room.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from collector import parts
from collector.schema.phases import PHASE_NAMES
from collector.traces.families import find_family
from collector.traces.kineto.calls import Calls
from collector.traces.kineto.classify import Kind
from collector.traces.kineto.clock import Ints
from collector.traces.kineto.context import Reading
from collector.traces.kineto.intern import Numbers
from collector.traces.kineto.model import Mask, Trace
from collector.traces.kineto.tables import encode, group, nullable, total
from collector.traces.kineto.work import Floats, sum_work


def build_operators(reading: Reading) -> pa.Table:
    """Build the table `operators`: calls by step, name, phase, module, shapes, dtypes and call stack."""
    trace = reading.trace
    calls = Calls.find(trace)
    rows = calls.rows
    if not len(rows):
        return parts.arrow_schema("operators").empty_table()
    self_ns = _sum_self(trace, calls)
    device_self_ns, device_total_ns = sum_device(trace, calls)
    flops, moved_bytes = sum_work(trace, calls)
    trace.release()
    args = trace.columns.args[rows]
    shapes, shape_texts = _number_texts(trace.arguments.texts("Input Dims", "Input dims"), args)
    dtypes, dtype_texts = _number_texts(trace.arguments.texts("Input type"), args)
    stacks, stack_texts = _number_stacks(reading, rows)
    modules, module_texts = _number_modules(reading, rows)
    phase = reading.phases.locate(trace.start_ns[rows])
    step_row = reading.step_row[rows]
    name = trace.columns.name[rows]
    trace.release()
    first, groups = group(step_row, name, phase, modules, shapes, dtypes, stacks)
    count = len(first)
    step, outside = reading.number_steps(step_row[first])
    return parts.build_table(
        "operators",
        {
            "step": nullable(step, outside),
            "name": encode(name[first], trace.names),
            "type": _find_families(reading, name[first]),
            "phase": encode(phase[first], PHASE_NAMES),
            "module": encode(modules[first], module_texts),
            "input_shapes": encode(shapes[first], shape_texts),
            "input_dtypes": encode(dtypes[first], dtype_texts),
            "call_stack": encode(stacks[first], stack_texts),
            "count": np.bincount(groups, minlength=count).astype(np.int64),
            "total_ns": total(trace.columns.duration_ns[rows], groups, count),
            "self_ns": total(self_ns, groups, count),
            "device_total_ns": total(np.where(_is_nested(name, calls), 0, device_total_ns), groups, count),
            "device_self_ns": total(device_self_ns, groups, count),
            "flops": _total_known(flops, groups, count),
            "moved_bytes": _total_known(moved_bytes, groups, count),
        },
    )


def _total_known(values: Floats, groups: Ints, count: int) -> pa.Array:
    """Return the sum of each group, null for one of which nothing is known."""
    known = ~np.isnan(values)
    sums = np.bincount(groups[known], weights=values[known], minlength=count)
    return pa.array(sums, mask=np.bincount(groups[known], minlength=count) == 0)


def _find_families(reading: Reading, name: Ints) -> pa.DictionaryArray:
    keys, compact = np.unique(name, return_inverse=True)
    families = [find_family(reading.trace.names[key]) for key in keys.tolist()]
    return encode(compact, families)


def sum_device(trace: Trace, calls: Calls) -> tuple[Ints, Ints]:
    """Return for each call the device time that it launched itself, and that with what it called."""
    device = np.flatnonzero(trace.is_device_work & (trace.links.operator >= 0))
    operator, length = trace.links.operator[device], trace.columns.duration_ns[device]
    called = trace.is_operator[operator]
    place, length = calls.place(operator[called]), length[called]
    own: Ints = np.zeros(len(calls), np.int64)
    np.add.at(own, place, length)
    whole = np.zeros(len(calls), np.int64)
    while len(place):
        np.add.at(whole, place, length)
        place = calls.up[place]
        place, length = place[place >= 0], length[place >= 0]
    return own, whole


def _is_nested(name: Ints, calls: Calls) -> Mask:
    """Return which calls stand inside a call of the same name, whose device time already holds theirs."""
    nested = np.zeros(len(calls), bool)
    rest = np.flatnonzero(calls.up >= 0)
    above = calls.up[rest]
    while len(rest):
        same = name[above] == name[rest]
        nested[rest[same]] = True
        rest, above = rest[~same], calls.up[above[~same]]
        rest, above = rest[above >= 0], above[above >= 0]
    return nested


def _sum_self(trace: Trace, calls: Calls) -> Ints:
    """Return the host time of each call without the operators and runtime calls directly inside it.

    Runtime calls count as callees, as in PyTorch from 1.8 on.
    """
    inside = np.flatnonzero((trace.is_operator | (trace.kinds.kind == Kind.RUNTIME)) & (trace.caller >= 0))
    taken = np.zeros(len(calls), np.int64)
    np.add.at(taken, calls.place(trace.caller[inside]), trace.columns.duration_ns[inside])
    # Files in whole microseconds round children up, so that they may seem to last longer than their parent.
    left: Ints = np.maximum(trace.columns.duration_ns[calls.rows] - taken, 0)
    return left


def _number_texts(texts: list[str | None], args: Ints) -> tuple[Ints, list[str]]:
    numbers = Numbers()
    codes = np.array([-1 if text is None else numbers[text] for text in texts], np.int64)
    return codes[args], list(numbers)


def _number_stacks(reading: Reading, rows: Ints) -> tuple[Ints, list[str]]:
    """Number the call stacks: from the frames of the trace, or from the arguments where old files have them."""
    tree = reading.tree
    if len(tree.frames):
        return _number_paths(tree.stack[rows], tree.call_stack)
    texts = reading.trace.arguments.texts("Call stack")
    lines = [text.replace(";", "\n") if text else None for text in texts]
    return _number_texts(lines, reading.trace.columns.args[rows])


def _number_modules(reading: Reading, rows: Ints) -> tuple[Ints, list[str]]:
    tree = reading.tree
    if len(tree.modules):
        return _number_paths(tree.module[rows], tree.module_path)
    return _number_texts(reading.trace.arguments.texts("Module Hierarchy"), reading.trace.columns.args[rows])


def _number_paths(codes: Ints, describe: Callable[[int], str]) -> tuple[Ints, list[str]]:
    used, compact = np.unique(codes, return_inverse=True)
    texts = [describe(code) if code >= 0 else "" for code in used.tolist()]
    return np.where(codes >= 0, compact, -1), texts
