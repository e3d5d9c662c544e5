"""Stacks as a tree of functions: each as wide as its samples, below what calls it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from profiler_server.analysis.stacks.frames import Frame

MOST_DEPTH = 24
LEAST_FRAC = 0.004
"""What is narrower than this part of the whole has no node."""


@dataclass(frozen=True)
class FlameNode:
    """A function where it was called: `start` and `samples` are counted along the whole, `depth` from 0."""

    label: str
    place: str
    is_own: bool
    depth: int
    start: int
    samples: int


@dataclass
class _Node:
    frame: Frame
    samples: int = 0
    lines: Counter[int] = field(default_factory=Counter)
    children: dict[tuple[str, str], _Node] = field(default_factory=dict)


def lay_out(weights: Mapping[tuple[Frame, ...], int]) -> tuple[FlameNode, ...]:
    """Return the functions in the order in which they are drawn: callers first, the widest on the left."""
    root = _Node(Frame("", "", 0, ""))
    for stack, samples in weights.items():
        node = root
        for frame in stack[:MOST_DEPTH]:
            node = node.children.setdefault(frame.function, _Node(frame))
            node.samples += samples
            node.lines[frame.line] += samples
    found: list[FlameNode] = []
    least = LEAST_FRAC * sum(weights.values())
    _place_children(root, 0, 0, least, found)
    return tuple(found)


def _place_children(node: _Node, depth: int, start: int, least: float, found: list[FlameNode]) -> None:
    for child in sorted(node.children.values(), key=lambda child: (-child.samples, child.frame.function)):
        if child.samples >= least:
            line = max(child.lines, key=lambda number: (child.lines[number], -number))
            place = f"{child.frame.base}:{line}" if child.frame.file else ""
            is_own = not child.frame.package
            found.append(FlameNode(child.frame.label, place, is_own, depth, start, child.samples))
            _place_children(child, depth + 1, start, least, found)
        start += child.samples
