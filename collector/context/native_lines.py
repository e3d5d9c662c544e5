"""Lines that libraries written in C++ print past `sys.stderr`, straight to its descriptor."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_STDERR = 2
_MOST_HELD_BYTES = 1 << 20


@contextmanager
def leave_out_lines(known: bytes) -> Iterator[None]:
    """Keep lines that contain `known` from stderr while the body runs.

    Everything else that any thread writes meanwhile is held in memory, and follows when the body ends. Where the
    descriptor cannot be turned aside, such as when the script has closed it, nothing is held back.
    """
    opened: list[int] = []
    try:
        _turn_aside(opened)
        yield
    finally:
        _turn_back(opened, known)


def _turn_aside(opened: list[int]) -> None:
    """Let stderr lead to memory; add where it led, and that memory, as they are opened."""
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
        _pass_on(held, known)
    for number in opened:
        os.close(number)


def _pass_on(held: int, known: bytes) -> None:
    text = os.pread(held, _MOST_HELD_BYTES, 0)
    kept = b"".join(line for line in text.splitlines(keepends=True) if known not in line)
    with suppress(OSError):  # whoever read it is gone
        while kept:
            kept = kept[os.write(_STDERR, kept) :]
