"""Sum operators into their table, without counting anything twice. Annotations only name work and are in no row."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

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
from collector.traces.kineto.classify.trace import Trace
from collector.traces.kineto.decode.numbering import Numbers, compress, group, total
from collector.traces.kineto.tables.context import Reading, encode, split_batches


@dataclass(frozen=True)
class Calls:
    """`rows` are the slices of operators in order; `up` is the index in `rows` of the call around each, -1 for none."""

    rows: Ints
    up: Ints

    @classmethod
    def find(cls, trace: Trace) -> Calls:
        rows = trace.log.scratch.where(trace.is_operator)

        def find_up(block: slice) -> Ints:
            caller = trace.caller[rows[block]]
            return np.where(caller >= 0, np.searchsorted(rows, caller), -1)

        return cls(rows, trace.log.scratch.compute(len(rows), find_up))

    def __len__(self) -> int:
        return len(self.rows)

    def place(self, rows: Ints) -> Ints:
        """Return the indices of some slices in `self.rows`. The slices must be operators."""
        return np.searchsorted(self.rows, rows)

    def find_around(self, wanted: Mask, block: slice) -> Ints:
        """Return the index of the nearest wanted call around each call of a block, -1 for none."""
        found = self.up[block].copy()
        rest = np.flatnonzero(found >= 0)
        while len(rest):
            rest = rest[~wanted[found[rest]]]
            found[rest] = self.up[found[rest]]
            rest = rest[found[rest] >= 0]
        return found


@dataclass(frozen=True)
class CallSums:
    """The figures of each call, in the order of `calls.rows`.

    Operations and least bytes are NaN if unknown, and exclude nested calls.
    """

    calls: Calls
    name: Ints
    step_row: Ints
    self_ns: Ints
    device_self_ns: Ints
    device_total_ns: Ints
    flops: Floats
    moved_bytes: Floats


def sum_calls(reading: Reading) -> CallSums:
    trace = reading.trace
    calls = Calls.find(trace)
    name, step_row = trace.take(trace.columns.name, calls.rows), trace.take(reading.step_row, calls.rows)
    own, whole = _sum_device(trace, calls)
    _clear_nested(trace, name, calls, whole)
    return CallSums(calls, name, step_row, _sum_self(trace, calls), own, whole, *_sum_work(trace, calls))


def _sum_device(trace: Trace, calls: Calls) -> tuple[Ints, Ints]:
    """Return the ns of device work for each call: of work that it launched itself, and of work including nested
    calls.
    """
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


def _clear_nested(trace: Trace, name: Ints, calls: Calls, whole: Ints) -> None:
    """Set the device time of calls inside a call of the same name to 0, because the outer call includes it already."""
    for block in trace.log.scratch.blocks(len(calls)):
        rest = np.flatnonzero(calls.up[block] >= 0) + block.start
        above = calls.up[rest]
        while len(rest):
            same = name[above] == name[rest]
            whole[rest[same]] = 0
            rest, above = rest[~same], calls.up[above[~same]]
            rest, above = rest[above >= 0], above[above >= 0]


def _sum_self(trace: Trace, calls: Calls) -> Ints:
    """Return the host time of each call without its direct nested operators and runtime calls.

    Runtime calls are callees, as in PyTorch from 1.8 on.
    """
    scratch, duration_ns = trace.log.scratch, trace.columns.duration_ns
    taken = scratch.array(len(calls), 0)
    for rows in trace.find(trace.is_operator | (trace.kind == Kind.RUNTIME)):
        inside = rows[trace.caller[rows] >= 0]
        np.add.at(taken, calls.place(trace.caller[inside]), duration_ns[inside])
    # Files in whole microseconds round children up, so that they may seem to last longer than their parent.
    return scratch.compute(len(calls), lambda block: np.maximum(duration_ns[calls.rows[block]] - taken[block], 0))


def _sum_work(trace: Trace, calls: Calls) -> tuple[Floats, Floats]:
    """Return operations and least bytes of each call, without nested calls.

    aten::linear calls aten::addmm, and both have a formula: the inner call gets the work, and the outer call 0.
    """
    work = _estimate_calls(trace, calls)
    inner = [trace.log.scratch.floats(len(calls)) for _ in range(2)]
    known = np.concatenate(
        [np.empty(0, bool), *(~np.isnan(work[0][block]) for block in trace.log.scratch.blocks(len(calls)))]
    )
    for block in trace.log.scratch.blocks(len(calls)):
        around = calls.find_around(known, block)
        inside = np.flatnonzero(known[block] & (around >= 0))
        for values, sums in zip(work, inner, strict=True):
            np.add.at(sums, around[inside], values[block][inside])
    for values, sums in zip(work, inner, strict=True):
        for block in trace.log.scratch.blocks(len(calls)):
            values[block] = np.maximum(values[block] - sums[block], 0.0)
    return work


def _estimate_calls(trace: Trace, calls: Calls) -> tuple[Floats, Floats]:
    """Return operations and least bytes of each call, estimated once per distinct name and arguments."""
    flops, moved = (trace.log.scratch.floats(len(calls), np.nan) for _ in range(2))
    has_formula = trace.find_named(find_formula) & (trace.kind == Kind.OPERATOR)
    estimates = _Estimates(trace)
    for block in trace.log.scratch.blocks(len(calls)):
        rows = calls.rows[block]
        places = np.flatnonzero(has_formula[rows])
        rows = rows[places]
        keys, place = np.unique(
            trace.columns.name[rows] * estimates.width + trace.columns.args[rows], return_inverse=True
        )
        found = np.array([estimates[key] for key in keys.tolist()]).reshape(-1, 2)
        flops[block.start + places], moved[block.start + places] = found[place].T
    return flops, moved


class _Estimates(dict[int, tuple[float, float]]):
    """A mapping from name and arguments to operations and least bytes.

    A key is the name's number times `width`, plus the number of the arguments.
    """

    def __init__(self, trace: Trace) -> None:
        super().__init__()
        self.width = len(trace.arguments)
        self._names = trace.names
        self._shapes = trace.arguments.texts("Input Dims", "Input dims")
        self._dtypes, self._values = trace.arguments.texts("Input type"), trace.arguments.texts("Concrete Inputs")

    def __missing__(self, key: int) -> tuple[float, float]:
        name, code = divmod(key, self.width)
        work = estimate_work(self._names[name], self._shapes[code], self._dtypes[code], self._values[code])
        found = self[key] = (np.nan, np.nan) if work is None else (work.flops, work.moved_bytes)
        return found


LAUNCHED_BY_NONE = f"{NO_OPERATOR}: launched outside of all)"
LAUNCH_NOT_RECORDED = f"{NO_OPERATOR}: launched before the trace began)"
"""The names of rows for device work outside every operator. They have no calls."""


_Numbered = tuple[Ints, list[str]]
"""The number of each text, -1 for none, and the distinct texts."""


def stream_operators(reading: Reading) -> Iterator[pa.RecordBatch]:
    """Build the table `operators`: calls by step, name, phase, module, shapes, dtypes and call stack; steps in order.

    The device work that no operator launched comes last.
    """
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
    """Return the sum of the known values in each group, null for a group without any."""
    known = ~np.isnan(values)
    sums = np.bincount(groups[known], weights=values[known], minlength=count)
    return from_numbers(sums, np.bincount(groups[known], minlength=count) == 0)


def _find_families(reading: Reading, name: Ints) -> pa.DictionaryArray:
    keys, compact = compress(name)
    families = [find_family(reading.trace.names[key]) for key in keys.tolist()]
    return encode(compact, families)


def _build_unowned(reading: Reading) -> pa.Table:
    """Build the rows of device work that no operator launched, so that the table includes all device work."""
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
    """Return the number of each text, -1 for None, and the distinct texts."""
    numbers = Numbers()
    codes = np.array([-1 if text is None else numbers[text] for text in texts], np.int64)
    return codes, list(numbers)


def _number_paths(codes: Ints, describe: Callable[[int], str]) -> _Numbered:
    used, compact = compress(codes)
    texts = [describe(code) if code >= 0 else "" for code in used.tolist()]
    return np.where(codes >= 0, compact, -1), texts
