"""The context of each slice: its module path and its call stack."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from collector.format.intervals import Ints, Mask
from collector.traces.kineto.classify.kinds import Kind
from collector.traces.kineto.classify.nesting import split_rows
from collector.traces.kineto.classify.trace import Trace
from collector.traces.kineto.decode.numbering import Numbers, list_different

_STACK_LIMIT = 200


@dataclass(frozen=True)
class Tree:
    """The module path and the call stack of each slice by number, -1 for none. Paths become texts only on request."""

    module: Ints
    stack: Ints
    modules: tuple[tuple[int, str], ...]
    frames: tuple[tuple[int, str], ...]

    def find_module(self, rows: Ints) -> Ints:
        """Return the number of the module path of each slice in `rows`; -1 without a path, and for row -1 (no slice)."""
        return np.where(rows >= 0, self.module[rows], -1) if len(self.modules) else np.full(len(rows), -1)

    def module_path(self, number: int) -> str:
        """Return the module path with this number: the modules from the outermost inwards, joined by dots."""
        return ".".join(reversed(_climb(self.modules, number)))

    def call_stack(self, number: int) -> str:
        """Return the call stack with this number: the frames, innermost first, joined by newlines."""
        return "\n".join(_climb(self.frames, number))


def build_tree(trace: Trace) -> Tree:
    is_module = trace.kind == Kind.MODULE
    is_frame = (trace.kind == Kind.PYTHON) | is_module
    if not is_frame.any():
        return Tree(np.empty(0, np.int64), np.empty(0, np.int64), (), ())
    module, modules = _number_paths(trace, is_module, len("nn.Module: "))
    _hand_to_backward(trace, module)
    stack, frames = _number_paths(trace, is_frame, 0)
    return Tree(module, stack, modules, frames)


def _hand_to_backward(trace: Trace, module: Ints) -> None:
    """Assign operators of a backward, and the operators inside them, to the module of their forward.

    Autograd gives a backward the sequence number of the forward operator that made its graph node. An operator that
    makes no node has the number of the next node. So the last operator with a number is the one that made the node.
    """
    forward = _find_forwards(trace, module)
    if not len(forward):
        return
    numbers = trace.columns.sequence[forward]
    for level in split_rows(trace.nesting.depth, trace.log.scratch):
        for rows in trace.log.scratch.stretches(level):
            rows = rows[trace.is_operator[rows] & (module[rows] < 0)]
            owner = trace.caller[rows]
            given = np.where(owner >= 0, module[owner], -1)
            sequence = trace.columns.sequence[rows]
            at = np.minimum(np.searchsorted(numbers, sequence), len(numbers) - 1)
            own = np.where((sequence >= 0) & (numbers[at] == sequence), module[forward[at]], -1)
            module[rows] = np.where(given >= 0, given, own)


def _find_forwards(trace: Trace, module: Ints) -> Ints:
    """Return for each sequence number that occurs in a module the row of the last operator with this number."""
    sequence, scratch = trace.columns.sequence, trace.log.scratch
    found = scratch.column()
    for rows in trace.find(trace.is_operator):
        found.append(rows[(module[rows] >= 0) & (sequence[rows] >= 0)])
    rows = scratch.sort(sequence, found.finish(), lambda mine: (trace.start_ns[mine],))
    last = np.append(np.diff(trace.take(sequence, rows)) > 0, True) if len(rows) else np.zeros(0, bool)
    forwards: Ints = rows[last]
    return forwards


def _number_paths(trace: Trace, member: Mask, prefix: int) -> tuple[Ints, tuple[tuple[int, str], ...]]:
    paths, width = Numbers(), len(trace.names)
    number = trace.log.scratch.array(len(trace.columns), -1)
    for level in split_rows(trace.nesting.depth, trace.log.scratch):
        for rows in trace.log.scratch.stretches(level):
            parents = trace.nesting.parent[rows]
            above = np.where(parents >= 0, number[parents], -1)
            number[rows] = above
            chosen = np.flatnonzero(member[rows])
            rows = rows[chosen]
            keys, places = list_different((above[chosen] + 1) * width + trace.columns.name[rows])
            number[rows] = paths.number(keys.tolist())[places]
    pairs = (divmod(key, width) for key in paths)
    return number, tuple((above - 1, trace.names[name][prefix:]) for above, name in pairs)


def _climb(paths: tuple[tuple[int, str], ...], number: int) -> list[str]:
    found: list[str] = []
    while number >= 0 and len(found) < _STACK_LIMIT:
        number, name = paths[number]
        found.append(name)
    return found
