"""What stands around each slice: the path of modules and the call stack."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from collector.traces.kineto.classify import Kind
from collector.traces.kineto.clock import Ints
from collector.traces.kineto.intern import Numbers
from collector.traces.kineto.model import Trace
from collector.traces.kineto.nest import walk_levels
from collector.traces.kineto.scratch import stretches

_STACK_LIMIT = 200


@dataclass(frozen=True)
class Tree:
    """`module` and `stack` number a path for each slice, -1 for none; the texts are made when asked for.

    A trace without any frame has none of both.
    """

    module: Ints
    stack: Ints
    modules: tuple[tuple[int, str], ...]
    frames: tuple[tuple[int, str], ...]

    def module_path(self, number: int) -> str:
        """Return the modules from the outermost, joined by dots."""
        return ".".join(reversed(_climb(self.modules, number)))

    def call_stack(self, number: int) -> str:
        """Return the frames, innermost first, joined by newlines."""
        return "\n".join(_climb(self.frames, number))


def build_tree(trace: Trace) -> Tree:
    """Number the module path and the call stack of every slice, outermost slices first."""
    is_module = trace.kinds.kind == Kind.MODULE
    is_frame = (trace.kinds.kind == Kind.PYTHON) | is_module
    if not is_frame.any():
        return Tree(np.empty(0, np.int64), np.empty(0, np.int64), (), ())
    module, modules = _number_paths(trace, is_module, len("nn.Module: "))
    stack, frames = _number_paths(trace, is_frame, 0)
    return Tree(module, stack, modules, frames)


def _number_paths(trace: Trace, member: np.ndarray, prefix: int) -> tuple[Ints, tuple[tuple[int, str], ...]]:
    paths = Numbers()
    number = trace.log.scratch.array(len(trace.columns), -1)
    for level in walk_levels(trace.nesting.depth, trace.log.scratch):
        for block in stretches(level):
            rows = level[block]
            parents = trace.nesting.parent[rows]
            above = np.where(parents >= 0, number[parents], -1)
            number[rows] = above
            chosen = member[rows]
            names = trace.columns.name[rows[chosen]].tolist()
            number[rows[chosen]] = [paths[key] for key in zip(above[chosen].tolist(), names, strict=True)]
            trace.release()
    return number, tuple((above, trace.names[name][prefix:]) for above, name in paths)


def _climb(paths: tuple[tuple[int, str], ...], number: int) -> list[str]:
    found: list[str] = []
    while number >= 0 and len(found) < _STACK_LIMIT:
        number, name = paths[number]
        found.append(name)
    return found
