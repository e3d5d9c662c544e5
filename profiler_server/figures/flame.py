"""A flame graph with the callers on top. Boxes are in percent of the width, so that no inline style is needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from profiler_server.facts.steps import FlameNode
from profiler_server.figures.strips import percent

ROW_HEIGHT = 20
_LEAST_NAMED_FRAC = 0.02
_LONGEST_NAME = 120


@dataclass(frozen=True)
class FlameBox:
    """The box of a function. `x` and `width` are SVG percentages, `y` is in pixels; `kind` is own, library or whole."""

    x: str
    y: int
    width: str
    kind: str
    text: str
    title: str


@dataclass(frozen=True)
class Flame:
    """The boxes of functions, and above them a box for the whole; `sentence` describes the picture."""

    boxes: tuple[FlameBox, ...]
    height: int
    sentence: str


def build_flame(title: str, nodes: Sequence[FlameNode], whole: int) -> Flame:
    """Lay out functions below a box for the whole, which has the title. `whole` is the number of all samples."""
    boxes = [FlameBox(percent(0, 1), 0, percent(1, 1), "whole", title, f"{title}: {whole:,} samples")]
    boxes += [_build_box(node, whole) for node in nodes]
    depth = 1 + max((node.depth + 1 for node in nodes), default=0)
    sentence = f"Functions of {title} by samples, callers above what they call; the table says the same in words."
    return Flame(tuple(boxes), depth * ROW_HEIGHT, sentence)


def _build_box(node: FlameNode, whole: int) -> FlameBox:
    share = node.samples / whole if whole else 0.0
    name = node.label if len(node.label) <= _LONGEST_NAME else f"{node.label[:_LONGEST_NAME]}…"
    return FlameBox(
        x=percent(node.start, whole),
        y=(node.depth + 1) * ROW_HEIGHT,
        width=percent(node.samples, whole),
        kind="own" if node.is_own else "library",
        text=name if share >= _LEAST_NAMED_FRAC else "",
        title=f"{name}{f' at {node.place}' if node.place else ''}: {100 * share:.0f} % of the samples ({node.samples:,})",
    )
