"""Where an interpreter keeps what a stack is made of."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

WORD_BYTES = 8
DIRECT = -1


class LayoutError(Exception):
    """The memory of this interpreter is not understood; the text says what was not found."""


@dataclass(frozen=True)
class Layout:
    """Offsets in bytes.

    `holder` is the place of the newest frame in what the thread points to, DIRECT where the thread points to the frame.
    `instructions` is where those of a code object begin, 0 where a frame counts them instead of pointing at one.
    `kind_shift` and `ascii_shift` are places of bits in the state of a text, `wide_text` where one that is not ASCII begins.
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


def find_thread() -> int:
    """Return where the calling thread's state lies."""
    ask = ctypes.pythonapi.PyThreadState_Get
    ask.restype = ctypes.c_void_p
    return int(ask() or 0)
