"""A frame of a stack: whose code it is, what it is called on a page; and stacks as a tree of frames."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

_FRAME = re.compile(r"(?P<name>.*) \((?P<file>.*):(?P<line>\d+)\)", re.DOTALL)
_PACKAGES = re.compile(r".*/(?:site|dist)-packages/(?P<rest>.+)")
_STANDARD = re.compile(r".*/lib(?:64)?/(?:python|pypy)3(?:\.\d+)?t?/(?P<rest>.+)")
_INTERNAL = ("<frozen ", "<__array_function__", "<class ", "<attrs generated")
_GENERATED = re.compile(r"<eval_with_key>.*|.*/torchinductor_[^/]*/.+", re.DOTALL)
"""Files that torch.compile writes: nobody can look them up."""
_CUT = "…"
"""Stands in a recorded stack for the frames that were too many to keep."""
_LONGEST_STACK, _LONGEST_LINE, _LONGEST_NAME, _LONGEST_FILE, _LONGEST_NUMBER = 200_000, 1_000, 200, 500, 9
"""What a recording writes is shorter; a table may come from anywhere."""
_COMPREHENSIONS = ("<genexpr>", "<listcomp>", "<dictcomp>", "<setcomp>")
_WRAPPERS = frozenset(
    (
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
    )
)
"""What decorators call the function that they return; its code does not know the name of the one that is decorated."""
_UNKNOWN = "(unknown)"
_NOBODY = "?"
"""The package of what is no frame of anybody's."""


@dataclass(frozen=True)
class Frame:
    """`package` is the library that the code is of, empty for code of the user's."""

    name: str
    file: str
    line: int
    package: str

    @property
    def function(self) -> tuple[str, str]:
        """What tells functions apart, wherever they are at that moment."""
        return self.name, self.file

    @property
    def label(self) -> str:
        """The function as a user would write it: `accuracy`, `Photos.__getitem__`, `PIL.Image.resize`. What a decorator
        returns has the name of the decorator."""
        outer, _, name = self.name.rpartition(".<locals>.")
        if outer and name in _WRAPPERS:
            name = outer.rpartition("<locals>.")[2]
        if not self.file:
            return name
        if name == "<module>":
            return f"{self.package} ({self.base})" if self.package else self.base
        return f"{self.package}.{name}" if self.package else name

    @property
    def is_unknown(self) -> bool:
        """Say whether it is nobody's frame: a line that is none, or the mark for frames that were left out."""
        return self.package == _NOBODY

    @property
    def is_comprehension(self) -> bool:
        """Say whether it is an expression with a frame of its own, which a reader takes for the line that it stands in."""
        return self.name.rpartition(".")[2] in _COMPREHENSIONS

    @property
    def is_internal(self) -> bool:
        """Say whether it is private, or defined inside of another function, as what a decorator returns is."""
        return "<locals>" in self.name or self.name.rpartition(".")[2].startswith("_")

    @property
    def is_wrapper(self) -> bool:
        """Say whether it is what a decorator returned: a user knows the function that it calls."""
        return self.name.rpartition(".")[2] in _WRAPPERS

    @property
    def base(self) -> str:
        """The name of the file without its folders."""
        return self.file.rpartition("/")[2]

    @property
    def place(self) -> str:
        return f"{self.base}:{self.line}"


def parse_frame(line: str) -> Frame:
    """Read a line of a stack; what is none gets a name that says so."""
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
    """Reads the stacks of one table: those of one program are made of the same few frames."""

    def __init__(self) -> None:
        self._parse = cache(parse_frame)

    def parse(self, text: str) -> tuple[Frame, ...]:
        """Return the frames of a stack, the outermost first."""
        return tuple(map(self._parse, text[:_LONGEST_STACK].splitlines()))


def _find_package(file: str) -> str:
    """Return the package of a library, or the module of the standard library; empty for a file of the user's."""
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
