"""A frame of a stack, with the owner of its code and its display name; and stacks as a tree of frames."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TypeVar

import numpy as np
import pyarrow as pa

from collector.format.intervals import Ints
from profiler_server.facts.steps import FlameNode

K = TypeVar("K")

_FRAME = re.compile(r"(?P<name>.*) \((?P<file>.*):(?P<line>\d+)\)", re.DOTALL)
_PACKAGES = re.compile(r".*/(?:site|dist)-packages/(?P<rest>.+)")
_STANDARD = re.compile(r".*/lib(?:64)?/(?:python|pypy)3(?:\.\d+)?t?/(?P<rest>.+)")
_INTERNAL = ("<frozen ", "<__array_function__", "<class ", "<attrs generated")
_GENERATED = re.compile(r"<eval_with_key>.*|.*/torchinductor_[^/]*/.+", re.DOTALL)
"""Files that torch.compile writes, which users cannot look up."""
_CUT = "…"
"""Marks omitted frames in a recorded stack that had too many."""
_LONGEST_STACK, _LONGEST_LINE, _LONGEST_NAME, _LONGEST_FILE, _LONGEST_NUMBER = 200_000, 1_000, 200, 500, 9
"""Length limits. Our recordings stay below them, but a table may come from an untrusted source."""
_COMPREHENSIONS = ("<genexpr>", "<listcomp>", "<dictcomp>", "<setcomp>")
_WRAPPERS = frozenset(
    [
        "wrapper",
        "_wrapper",
        "wrapped",
        "_wrapped",
        "inner",
        "_inner",
        "decorated",
        "decorate_context",
        "_fn",
        "wrapped_fn",
    ]
)
"""Usual names of the functions that decorators return. Their code does not have the name of the decorated function."""
_UNKNOWN = "(unknown)"
_NOBODY = "?"
"""The package of a line that is no real frame."""


@dataclass(frozen=True)
class Frame:
    """One frame of a stack: a function and its current line. `package` is the library of its code, empty for user code."""

    name: str
    file: str
    line: int
    package: str

    @property
    def function(self) -> tuple[str, str]:
        """Return the identity of the function, regardless of the current line."""
        return self.name, self.file

    @property
    def label(self) -> str:
        """Return the function as a user would write it: `accuracy`, `Photos.__getitem__`, `PIL.Image.resize`.

        A function that a decorator returned has the name of the decorator.
        """
        outer, _, name = self.name.rpartition(".<locals>.")
        if outer and name in _WRAPPERS:
            name = outer.rpartition("<locals>.")[2]
        if not self.file:
            return name
        if name == "<module>":
            return f"{self.package} ({self.base})" if self.package else self.base
        return f"{self.package}.{name}" if self.package else name

    @property
    def is_comprehension(self) -> bool:
        """Return whether this is a comprehension or a generator expression, which has a frame of its own."""
        return self.name.rpartition(".")[2] in _COMPREHENSIONS

    @property
    def is_internal(self) -> bool:
        """Return whether the function is private, or defined inside of another function."""
        return "<locals>" in self.name or self.name.rpartition(".")[2].startswith("_")

    @property
    def is_wrapper(self) -> bool:
        """Return whether a decorator returned this function. Users do not know it by name, but know the function that
        it calls.
        """
        return self.name.rpartition(".")[2] in _WRAPPERS

    @property
    def base(self) -> str:
        """Return the file name without folders."""
        return self.file.rpartition("/")[2]

    @property
    def place(self) -> str:
        return f"{self.base}:{self.line}"


def parse_frame(line: str) -> Frame:
    """Parse a line of a stack. An unreadable line gets a name that marks it as unreadable."""
    if len(line) > _LONGEST_LINE:
        line = line[:_LONGEST_NAME] + line[-_LONGEST_FILE - _LONGEST_NUMBER :]
    if not line.isprintable():  # signs that turn the direction of writing are among those
        line = "".join(letter if letter.isprintable() else "?" for letter in line)
    found = _FRAME.fullmatch(line)
    if found is None or len(found["line"]) > _LONGEST_NUMBER:
        return Frame(line[:_LONGEST_NAME] or _UNKNOWN, "", 0, _NOBODY)
    file = found["file"][-_LONGEST_FILE:]
    return Frame(found["name"][:_LONGEST_NAME], file, int(found["line"]), _find_package(file))


class StackParser:
    """A parser of one table's stacks with a cache, because the stacks of one program share few frames."""

    def __init__(self) -> None:
        self._parse = cache(parse_frame)

    def parse(self, text: str) -> tuple[Frame, ...]:
        """Return the frames of a stack, outermost first."""
        return tuple(map(self._parse, text[:_LONGEST_STACK].splitlines()))


def number_stacks(rows: pa.Table, find_key: Callable[[tuple[Frame, ...]], K | None]) -> tuple[list[K], Ints]:
    """Return the distinct keys that `find_key` gives the stacks of `rows`, and for each row the index of its key.

    A row whose key is None gets the number of keys as index.
    """
    parser, texts = StackParser(), rows["stack"].cast(pa.string()).to_pylist()
    known = {text: find_key(parser.parse(text)) for text in set(texts)}
    keys = list(dict.fromkeys(key for key in known.values() if key is not None))
    codes: dict[K | None, int] = {key: code for code, key in enumerate(keys)}
    return keys, np.array([codes.get(known[text], len(keys)) for text in texts], np.int64)


def _find_package(file: str) -> str:
    if file == _CUT:
        return _NOBODY
    if _GENERATED.fullmatch(file):
        return "torch"
    found = _PACKAGES.fullmatch(file) or _STANDARD.fullmatch(file)
    if found is not None:
        return found["rest"].partition("/")[0].removesuffix(".py")
    return "python" if file.startswith(_INTERNAL) else ""


MOST_DEPTH = 24
LEAST_FRAC = 0.004
"""Share of the whole below which a function has no node."""


@dataclass
class _Node:
    frame: Frame
    samples: int = 0
    lines: Counter[int] = field(default_factory=Counter)
    children: dict[tuple[str, str], _Node] = field(default_factory=dict)


def lay_out(weights: Mapping[tuple[Frame, ...], int]) -> tuple[FlameNode, ...]:
    """Return the functions of a flame graph in drawing order: callers before callees, the most samples on the left."""
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
