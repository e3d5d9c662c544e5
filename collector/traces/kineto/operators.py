"""Sum operators into their table. Annotations only name what operators do, and are slices only."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from collector.format import parts
from collector.format.arrays import from_numbers
from collector.format.phases import PHASE_NAMES
from collector.format.words import NO_OPERATOR
from collector.traces.families import find_family
from collector.traces.kineto.batches import split_batches
from collector.traces.kineto.calls import Calls
from collector.traces.kineto.classify import Kind
from collector.traces.kineto.clock import Ints
from collector.traces.kineto.context import Reading
from collector.traces.kineto.intern import Numbers
from collector.traces.kineto.model import Trace
from collector.traces.kineto.scratch import blocks
from collector.traces.kineto.tables import compress, encode, group, nullable, total
from collector.traces.kineto.work import Floats, sum_work

LAUNCHED_BY_NONE = f"{NO_OPERATOR}: launched outside of all)"
LAUNCH_NOT_RECORDED = f"{NO_OPERATOR}: launched before the trace began)"
"""Rows for device work that stands in no operator. They count no call."""


@dataclass(frozen=True)
class _Sums:
    """What is known of each call, in the order of `calls.rows`."""

    calls: Calls
    name: Ints
    step_row: Ints
    self_ns: Ints
    device_self_ns: Ints
    device_total_ns: Ints
    flops: Floats
    moved_bytes: Floats


@dataclass(frozen=True)
class _Texts:
    """What a group of calls has in common besides name, step and phase: the number for each arguments, and the text of each.

    Call stacks and modules are those of the arguments, as old files have them.
    """

    shapes: tuple[Ints, list[str]]
    dtypes: tuple[Ints, list[str]]
    stacks: tuple[Ints, list[str]]
    modules: tuple[Ints, list[str]]


def stream_operators(reading: Reading) -> Iterator[pa.RecordBatch]:
    """Build the table `operators`: calls by step, name, phase, module, shapes, dtypes and call stack; steps in order."""
    sums = _sum_calls(reading)
    arguments = reading.trace.arguments
    lines = [text.replace(";", "\n") if text else None for text in arguments.texts("Call stack")]
    texts = _Texts(
        _number_texts(arguments.texts("Input Dims", "Input dims")),
        _number_texts(arguments.texts("Input type")),
        _number_texts(lines),
        _number_texts(arguments.texts("Module Hierarchy")),
    )
    trace = reading.trace
    for places in split_batches(sums.step_row, sums.name, len(trace.names), trace.log.scratch):
        yield from _build_batch(reading, sums, texts, places).to_batches()
        trace.release()
    yield from _build_unowned(reading).to_batches()


def _sum_calls(reading: Reading) -> _Sums:
    trace = reading.trace
    calls = Calls.find(trace)
    name, step_row = trace.take(trace.columns.name, calls.rows), trace.take(reading.step_row, calls.rows)
    own, whole = sum_device(trace, calls)
    _clear_nested(name, calls, whole)
    trace.release()
    return _Sums(calls, name, step_row, _sum_self(trace, calls), own, whole, *sum_work(trace, calls))


def _build_batch(reading: Reading, sums: _Sums, texts: _Texts, places: Ints) -> pa.Table:
    trace = reading.trace
    rows = sums.calls.rows[places]
    args, name, step_row = trace.columns.args[rows], sums.name[places], sums.step_row[places]
    shapes, dtypes = texts.shapes[0][args], texts.dtypes[0][args]
    tree = reading.tree
    stacks, stack_texts = (
        _number_paths(tree.stack[rows], tree.call_stack)
        if len(tree.frames)
        else (texts.stacks[0][args], texts.stacks[1])
    )
    modules, module_texts = (
        _number_paths(tree.module[rows], tree.module_path)
        if len(tree.modules)
        else (texts.modules[0][args], texts.modules[1])
    )
    phase = reading.phases.locate(trace.start_ns[rows])
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
            "input_shapes": encode(shapes[first], texts.shapes[1]),
            "input_dtypes": encode(dtypes[first], texts.dtypes[1]),
            "call_stack": encode(stacks[first], stack_texts),
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


def sum_device(trace: Trace, calls: Calls) -> tuple[Ints, Ints]:
    """Return for each call the device time that it launched itself, and that with what it called."""
    own, whole = (trace.log.scratch.array(len(calls), 0) for _ in range(2))
    for device in trace.find(trace.is_device_work):
        operator = trace.links.operator[device]
        called = (operator >= 0) & trace.is_operator[operator]
        place, length = calls.place(operator[called]), trace.columns.duration_ns[device[called]]
        np.add.at(own, place, length)
        while len(place):
            np.add.at(whole, place, length)
            place = calls.up[place]
            place, length = place[place >= 0], length[place >= 0]
    return own, whole


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
    step, outside = reading.number_steps(np.array([row for row, _ in keys], np.int64))
    own = np.array([sums[key] for key in keys], np.int64)
    nothing = np.zeros(len(keys), np.int64)
    return parts.build_table(
        "operators",
        {
            "step": nullable(step, outside),
            "name": [name for _, name in keys],
            "type": ["other"] * len(keys),
            "count": nothing,
            "total_ns": nothing,
            "self_ns": nothing,
            "device_total_ns": own,
            "device_self_ns": own,
        },
    )


def _clear_nested(name: Ints, calls: Calls, whole: Ints) -> None:
    """Take the device time from calls that stand inside a call of the same name, which holds theirs already."""
    for block in blocks(len(calls)):
        rest = np.flatnonzero(calls.up[block] >= 0) + block.start
        above = calls.up[rest]
        while len(rest):
            same = name[above] == name[rest]
            whole[rest[same]] = 0
            rest, above = rest[~same], calls.up[above[~same]]
            rest, above = rest[above >= 0], above[above >= 0]


def _sum_self(trace: Trace, calls: Calls) -> Ints:
    """Return the host time of each call without the operators and runtime calls directly inside it.

    Runtime calls count as callees, as in PyTorch from 1.8 on.
    """
    taken = trace.log.scratch.array(len(calls), 0)
    for rows in trace.find(trace.is_operator | (trace.kinds.kind == Kind.RUNTIME)):
        inside = rows[trace.caller[rows] >= 0]
        np.add.at(taken, calls.place(trace.caller[inside]), trace.columns.duration_ns[inside])
    left = trace.log.scratch.column()
    for block in blocks(len(calls)):
        # Files in whole microseconds round children up, so that they may seem to last longer than their parent.
        left.append(np.maximum(trace.columns.duration_ns[calls.rows[block]] - taken[block], 0))
        trace.release()
    return left.finish()


def _number_texts(texts: list[str | None]) -> tuple[Ints, list[str]]:
    """Number the different texts of arguments. Return the number for each arguments, and the texts."""
    numbers = Numbers()
    codes = np.array([-1 if text is None else numbers[text] for text in texts], np.int64)
    return codes, list(numbers)


def _number_paths(codes: Ints, describe: Callable[[int], str]) -> tuple[Ints, list[str]]:
    used, compact = compress(codes)
    texts = [describe(code) if code >= 0 else "" for code in used.tolist()]
    return np.where(codes >= 0, compact, -1), texts
