"""Keep known lines of C++ libraries off the terminal."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_STDERR = 2
_MOST_HELD_BYTES = 1 << 20


@contextmanager
def leave_out_lines(known: bytes) -> Iterator[None]:
    """Filter out lines with `known` that C++ libraries write directly to the descriptor of stderr.

    Other output of any thread is held in memory, and is written when the block ends. If the descriptor cannot be
    redirected, for example because the script has closed it, nothing is filtered.
    """
    opened: list[int] = []
    try:
        _turn_aside(opened)
        yield
    finally:
        _turn_back(opened, known)


def _turn_aside(opened: list[int]) -> None:
    """Redirect stderr to memory. Append two descriptors to `opened`: the old target, and the memory."""
    if not hasattr(os, "memfd_create"):
        return
    with suppress(OSError):
        opened.append(os.dup(_STDERR))
        opened.append(os.memfd_create("stepscope stderr"))
        os.dup2(opened[1], _STDERR)


def _turn_back(opened: list[int], known: bytes) -> None:
    if len(opened) == 2:
        stderr, held = opened
        os.dup2(stderr, _STDERR)
        text = os.pread(held, _MOST_HELD_BYTES, 0)
        kept = b"".join(line for line in text.splitlines(keepends=True) if known not in line)
        with suppress(OSError):  # whoever read it is gone
            while kept:
                kept = kept[os.write(_STDERR, kept) :]
    for number in opened:
        os.close(number)
