"""Stacks by number: what each says in words, and which stage of the data pipeline it is in, if it is in one."""

from __future__ import annotations

import linecache
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from collector.frames.reading import Code, Place, StackReader

MOST_STACKS = 4000
"""Different ones that are told apart in a run; what comes after them is OTHER."""
MOST_PLACES = 50_000
OTHER = "(other)"
NOT_THEIRS = -1
"""The number of a stack that is in code of ours, such as a clock."""
MOST_NUMBERS = 100_000
UNDIVIDED = "fetch"
"""Of a batch whose samples are not timed one by one: reading or transforming."""
INPUT_WAIT = "wait"
_OUTER_FRAMES, _INNER_FRAMES = 40, 24
_LEFT_OUT = "… (…:0)"
_LONGEST_NAME, _LONGEST_FILE = 160, 300
_OURS = str(Path(__file__).resolve().parents[1]) + "/"
_FETCH = ("torch/utils/data/_utils/fetch.py", "fetch")
_NO_FRAME = -1


class Frame(NamedTuple):
    name: str
    file: str
    line: int

    @property
    def is_ours(self) -> bool:
        return self.file.startswith(_OURS)

    def __str__(self) -> str:
        return f"{self.name} ({self.file}:{self.line})"


class Stack(NamedTuple):
    """`text` is a line per frame, the outermost first. `entry` frames of it lie outside of the stage."""

    text: str
    stage: str | None
    entry: int


class StackBook:
    """Gives each different stack a number."""

    def __init__(self) -> None:
        self._frames: dict[Frame, int] = {}
        self._numbers: dict[tuple[int, ...], int] = {}
        self._known: list[Frame] = []
        self._stacks: list[Stack] = [Stack(OTHER, None, 0)]
        self._places: dict[tuple[int, Place], int] = {}

    def __getitem__(self, number: int) -> Stack:
        return self._stacks[number]

    def number(self, reader: StackReader, places: Sequence[Place]) -> int:
        """Return the number of a stack that was just read, the innermost frame first; NOT_THEIRS if it says nothing."""
        key = tuple(number for place in reversed(places) if (number := self._find(reader, place)) != _NO_FRAME)
        found = self._numbers.get(key)
        if found is None:
            if len(self._numbers) >= MOST_NUMBERS:
                return 0
            found = self._numbers[key] = self._describe([self._known[number] for number in key])
        return found

    def _describe(self, frames: Sequence[Frame]) -> int:
        if not frames or frames[-1].is_ours:
            return NOT_THEIRS
        if len(self._stacks) > MOST_STACKS:
            return 0
        self._stacks.append(describe_stack(frames))
        return len(self._stacks) - 1

    def forget(self) -> None:
        """Look at what lies at each address again from here on."""
        self._places.clear()

    def _find(self, reader: StackReader, place: Place) -> int:
        key = (id(reader), place)
        found = self._places.get(key)
        if found is None:
            if len(self._places) >= MOST_PLACES:
                self._places.clear()
            code = reader.describe(place[0])
            found = self._places[key] = _NO_FRAME if code is None else self._add(code, place[1])
        return found

    def _add(self, code: Code, instruction: int) -> int:
        name, file = _clean(code.name)[:_LONGEST_NAME], _clean(code.file)[-_LONGEST_FILE:]
        frame = Frame(name, file, max(code.find_line(instruction), 0))
        number = self._frames.get(frame)
        if number is None:
            number = self._frames[frame] = len(self._known)
            self._known.append(frame)
        return number


def describe_stack(frames: Sequence[Frame]) -> Stack:
    """Return what a stack says, without frames of ours and of the import system."""
    kept: list[str] = []
    stage, entry, is_timed = None, 0, False
    for frame in frames:
        found = _find_stage(frame, is_timed)
        if found is not None:
            is_timed = is_timed or found in ("read", "transform")
            if stage != "collate":
                stage = found
                entry = len(kept) + (not frame.is_ours)
        if not frame.is_ours and not frame.file.startswith("<frozen "):
            kept.append(str(frame))
    if len(kept) > _OUTER_FRAMES + _INNER_FRAMES:
        kept = [*kept[:_OUTER_FRAMES], _LEFT_OUT, *kept[-_INNER_FRAMES:]]
    return Stack("\n".join(kept), stage, min(entry, _OUTER_FRAMES))


def _find_stage(frame: Frame, is_timed: bool) -> str | None:
    """Return the stage that begins with a frame. The code that times stages is on the stack itself, where it times."""
    if (frame.file.endswith(_FETCH[0])) and frame.name.endswith(_FETCH[1]):
        return "collate" if "collate_fn" in linecache.getline(frame.file, frame.line) else UNDIVIDED
    if not frame.is_ours:
        return None
    file, name = frame.file[len(_OURS) :], frame.name.rpartition(".")[2]
    if file == "workers/fetching.py":
        return {"_run_collate": "collate", "__getitem__": "read", "__getitems__": "read", "__next__": "read"}.get(name)
    if file == "workers/tally.py" and name == "timed":
        return "transform"
    if file == "workers/entry.py":
        return {"get": INPUT_WAIT, "put": "send"}.get(name)
    return None


def _clean(text: str) -> str:
    return text if text.isprintable() else "".join(part if part.isprintable() else "?" for part in text)
