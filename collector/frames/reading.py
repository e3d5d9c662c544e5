"""Read the stack of a thread of another process while the process runs.

The memory may change during the reading. So a frame is used only if it leads to a code object, and a stack only if its
outermost frame is reached. Any other reading is dropped.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

WORD_BYTES = 8
DIRECT = -1
MOST_FRAMES = 1000
_MOST_CODES = 20_000
_PAGE = 12
_PAGE_BYTES = 1 << _PAGE
_TAGS = ~3
_LONGEST_TEXT = 400
_LONGEST_TABLE = 1 << 16
_INSTRUCTION_BYTES = 2
_SHIM = "<shim>"
"""File name of the frames with which Python 3.12 enters its own interpreter."""
Place = tuple[int, int]
"""A frame: the address of its code object, and the byte offset of its current instruction."""


class LayoutError(Exception):
    """The memory layout of this interpreter is not known; the message says what was not found."""


@dataclass(frozen=True)
class Layout:
    """The offsets of fields in the interpreter's memory, in bytes, but for `code_type` and the two shifts.

    `thread` is the offset, in a thread's state, of a pointer. `holder` is the offset of the newest frame's address in
    the object there; DIRECT if the pointer leads to the frame itself. `code`, `previous` and `instruction` are those in
    a frame, `file` to `lines` those in a code object. `instructions` is the start of a code object's instructions; 0 if
    a frame has an index instead of a pointer. `code_type` is the address of the class of code objects. `ascii_text` and
    `wide_text` are the starts of ASCII and other characters in a text. The shifts are bit positions in its state.
    """

    thread: int
    holder: int
    code: int
    previous: int
    instruction: int
    instructions: int
    code_type: int
    file: int
    name: int
    first_line: int
    lines: int
    ascii_text: int
    wide_text: int
    kind_shift: int
    ascii_shift: int


def read_word(data: bytes, offset: int = 0) -> int:
    return int.from_bytes(data[offset : offset + WORD_BYTES], "little")


@dataclass(frozen=True)
class Code:
    """A function: its qualified name (the plain name before Python 3.11), its file and its lines. From byte `starts[i]`
    of its instructions on, they belong to line `lines[i]`, 0 if unknown."""

    name: str
    file: str
    first_line: int
    starts: tuple[int, ...]
    lines: tuple[int, ...]

    def find_line(self, instruction: int) -> int:
        """Return the line of the instruction at this byte; if unknown, the first line of the function."""
        at = bisect_right(self.starts, instruction) - 1
        return (self.lines[at] if at >= 0 else 0) or self.first_line


class StackReader:
    """A reader of the stacks of one thread, or of others of its process. It closes `memory`, a descriptor of the
    process's memory. `thread` is the address of the thread's state, `shift` the distance of the process's addresses
    from those of this process."""

    def __init__(self, memory: int, layout: Layout, thread: int, shift: int = 0) -> None:
        self._memory = memory
        self._layout = layout
        self._code_type = layout.code_type + shift
        self.thread = thread
        self.shift = shift
        self._codes: dict[int, Code | None] = {}
        self._pages: dict[int, Sequence[int]] = {}

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        if getattr(self, "_memory", -1) >= 0:
            memory, self._memory = self._memory, -1
            os.close(memory)

    @property
    def memory(self) -> int:
        return self._memory

    def read(self, thread: int = 0) -> list[Place] | None:
        """Return the frames of the stack, innermost first; None if it changed meanwhile or has MOST_FRAMES or more.
        `thread` is the address of another thread's state, 0 for the reader's own. Raise OSError if the process is gone.
        """
        layout = self._layout
        self._pages.clear()
        try:
            at = read_word(self._read_exactly((thread or self.thread) + layout.thread, 8))
        except OverflowError:
            raise OSError("there is no such thread") from None
        found: list[Place] = []
        word, instructions = self._word, layout.instructions
        to_code, to_instruction, to_previous = layout.code, layout.instruction, layout.previous
        try:
            if at and layout.holder != DIRECT:
                at = read_word(self._read_exactly(at + layout.holder, 8))
            while at and len(found) < MOST_FRAMES:
                code, instruction = word(at + to_code) & _TAGS, word(at + to_instruction)
                if instructions:
                    instruction -= code + instructions
                else:
                    instruction = (instruction & 0xFFFFFFFF) * _INSTRUCTION_BYTES
                found.append((code, instruction))
                at = word(at + to_previous)
        except (OSError, OverflowError):
            return None
        return None if at else found

    def describe(self, address: int) -> Code | None:
        """Return the function whose code object is at an address; None if another object is, or Python's own code."""
        try:
            return self._codes[address]
        except KeyError:
            if len(self._codes) >= _MOST_CODES:
                self._codes.clear()
            code = self._codes[address] = self._read_code(address)
            return code

    def forget(self) -> None:
        """Forget the code objects read so far: the same addresses may hold other objects now."""
        self._codes.clear()

    def _word(self, address: int) -> int:
        page = address >> _PAGE
        words = self._pages.get(page)
        if words is None:
            words = self._pages[page] = memoryview(self._read_exactly(page << _PAGE, _PAGE_BYTES)).cast("Q")
        return words[(address & (_PAGE_BYTES - 1)) >> 3]

    def _read_exactly(self, address: int, size: int) -> bytes:
        data = os.pread(self._memory, size, address)
        if len(data) != size:
            raise OSError("the process is gone")
        return data

    def _read_code(self, address: int) -> Code | None:
        layout = self._layout
        try:
            if read_word(self._read_exactly(address + 8, 8)) != self._code_type:
                return None
            lines = self._read_bytes(self._read_pointer(address + layout.lines))
            first = int.from_bytes(self._read_exactly(address + layout.first_line, 4), "little", signed=True)
            name = self._read_text(self._read_pointer(address + layout.name))
            file = self._read_text(self._read_pointer(address + layout.file))
        except (OSError, OverflowError, ValueError):
            return None
        return None if file == _SHIM else Code(name, file, first, *_list_lines(lines, first))

    def _read_pointer(self, address: int) -> int:
        return read_word(self._read_exactly(address, 8))

    def _read_bytes(self, address: int) -> bytes:
        size = self._read_pointer(address + 16)
        return self._read_exactly(address + bytes.__basicsize__ - 1, min(size, _LONGEST_TABLE))

    def _read_text(self, address: int) -> str:
        layout = self._layout
        length = min(self._read_pointer(address + 16), _LONGEST_TEXT)
        state = int.from_bytes(self._read_exactly(address + 32, 4), "little")
        if state >> layout.ascii_shift & 1:
            return self._read_exactly(address + layout.ascii_text, length).decode("latin-1")
        width = state >> layout.kind_shift & 7
        data = self._read_exactly(address + layout.wide_text, length * width)
        encoding = {1: "latin-1", 2: "utf-16-le", 4: "utf-32-le"}[width if width in (1, 2, 4) else 1]
        return data.decode(encoding, "replace")


def _list_lines(table: bytes, first_line: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the byte offsets of a function's instructions at which a line starts, and these lines; 0 if unknown.

    This process can decode the table of another process, because both run the same Python.
    """
    try:
        code = _list_lines.__code__.replace(co_linetable=table, co_firstlineno=first_line)
        pieces = [(start, line or 0) for start, _, line in code.co_lines()]
    except (ValueError, TypeError, MemoryError):
        return (), ()
    return tuple(start for start, _ in pieces), tuple(line for _, line in pieces)
