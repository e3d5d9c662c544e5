"""Keep libraries from what they do beside the work: known lines of C++ libraries on the terminal, imports."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import ModuleType
from typing import Any

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


@contextmanager
def leave_out_import(package: ModuleType, name: str) -> Iterator[None]:
    """Let this thread not find `package.name` where a module's `__getattr__` would import it now. Other threads do."""
    find, here = vars(package).get("__getattr__"), threading.get_ident()
    if find is None or f"{package.__name__}.{name}" in sys.modules:
        yield
        return

    def find_other(asked: str) -> Any:
        if asked == name and threading.get_ident() == here:
            raise AttributeError(f"module {package.__name__!r} has no attribute {name!r} yet")
        return find(asked)

    vars(package)["__getattr__"] = find_other
    try:
        yield
    finally:
        if vars(package).get("__getattr__") is find_other:
            vars(package)["__getattr__"] = find


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
