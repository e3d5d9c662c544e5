"""Sum operators into their table. Annotations only name what operators do, and are slices only.

May import numpy, pyarrow, `collector.parts`, `collector.traces.families` and its neighbours in this room.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

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

_BATCH_CALLS = 1 << 18


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
    """What calls are told apart by besides name, step and phase: numbers, and the text of each number."""

    shapes: tuple[Ints, list[str]]
    dtypes: tuple[Ints, list[str]]


def stream_operators(reading: Reading) -> Iterator[pa.RecordBatch]:
    """Build the table `operators`: calls by step, name, phase, module, shapes, dtypes and call stack; steps in order."""
    sums = _sum_calls(reading)
    arguments = reading.trace.arguments
    texts = _Texts(
        _number_texts(arguments.texts("Input Dims", "Input dims")), _number_texts(arguments.texts("Input type"))
    )
    for places in _split_steps(sums.step_row):
        yield from _build_batch(reading, sums, texts, places).to_batches()
        reading.trace.release()


def _sum_calls(reading: Reading) -> _Sums:
    trace = reading.trace
    keep = trace.log.scratch.keep
    calls = Calls.find(trace)
    calls = Calls(keep(calls.rows), keep(calls.up))
    trace.release()
    name, step_row = keep(trace.columns.name[calls.rows]), keep(reading.step_row[calls.rows])
    own, whole = (keep(values) for values in sum_device(trace, calls))
    trace.release()
    whole = keep(np.where(_is_nested(name, calls), 0, whole))
    self_ns = keep(_sum_self(trace, calls))
    trace.release()
    flops, moved_bytes = (keep(values.view(np.int64)).view(np.float64) for values in sum_work(trace, calls))
    trace.release()
    return _Sums(calls, name, step_row, self_ns, own, whole, flops, moved_bytes)


def _split_steps(step_row: Ints) -> list[Ints]:
    """Return the places of calls in batches of whole steps: calls of two steps are never one row of the table."""
    if not len(step_row):
        return []
    order = np.arange(len(step_row))
    if (step_row[1:] < step_row[:-1]).any():
        order = np.argsort(step_row, kind="stable")
    edges = np.flatnonzero(np.diff(step_row[order])) + 1
    cuts = edges[np.searchsorted(edges, np.arange(_BATCH_CALLS, len(order), _BATCH_CALLS)).clip(max=len(edges) - 1)]
    return np.split(order, np.unique(cuts)) if len(edges) else [order]


def _build_batch(reading: Reading, sums: _Sums, texts: _Texts, places: Ints) -> pa.Table:
    trace = reading.trace
    rows = sums.calls.rows[places]
    args, name, step_row = trace.columns.args[rows], sums.name[places], sums.step_row[places]
    shapes, dtypes = texts.shapes[0][args], texts.dtypes[0][args]
    stacks, stack_texts = _number_stacks(reading, rows)
    modules, module_texts = _number_modules(reading, rows)
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


def _number_texts(texts: list[str | None]) -> tuple[Ints, list[str]]:
    """Number the different texts of arguments. Return the number for each arguments, and the texts."""
    numbers = Numbers()
    codes = np.array([-1 if text is None else numbers[text] for text in texts], np.int64)
    return codes, list(numbers)


def _number_stacks(reading: Reading, rows: Ints) -> tuple[Ints, list[str]]:
    """Number the call stacks: from the frames of the trace, or from the arguments where old files have them."""
    tree = reading.tree
    if len(tree.frames):
        return _number_paths(tree.stack[rows], tree.call_stack)
    texts = reading.trace.arguments.texts("Call stack")
    lines = [text.replace(";", "\n") if text else None for text in texts]
    codes, found = _number_texts(lines)
    return codes[reading.trace.columns.args[rows]], found


def _number_modules(reading: Reading, rows: Ints) -> tuple[Ints, list[str]]:
    tree = reading.tree
    if len(tree.modules):
        return _number_paths(tree.module[rows], tree.module_path)
    codes, found = _number_texts(reading.trace.arguments.texts("Module Hierarchy"))
    return codes[reading.trace.columns.args[rows]], found


def _number_paths(codes: Ints, describe: Callable[[int], str]) -> tuple[Ints, list[str]]:
    used, compact = np.unique(codes, return_inverse=True)
    texts = [describe(code) if code >= 0 else "" for code in used.tolist()]
    return np.where(codes >= 0, compact, -1), texts
