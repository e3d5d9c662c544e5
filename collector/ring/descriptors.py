"""Descriptors that stay ours.

A script may close every descriptor that it does not know, as a daemon does; what it opens then gets their numbers. Nothing
of ours uses the offset of a file, so an odd one marks a file as ours. And what a script has closed of stdin, stdout and
stderr must not become a file of ours: others would write to it.
"""

from __future__ import annotations

import os

MARK = 0x5354_5257
_FIRST = 3


def keep(descriptor: int) -> int:
    """Mark an open file as ours and return its descriptor, which is another one if it was a standard one.

    OSError passes through; the file is open still.
    """
    os.lseek(descriptor, MARK, os.SEEK_SET)
    if descriptor >= _FIRST:
        return descriptor
    import fcntl  # not everywhere, and hardly ever needed

    moved: int = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _FIRST)
    os.close(descriptor)
    return moved


def is_ours(descriptor: int) -> bool:
    """Say whether a descriptor still is the file that was kept."""
    try:
        return os.lseek(descriptor, 0, os.SEEK_CUR) == MARK
    except OSError:
        return False


def close_ours(descriptor: int) -> None:
    """Close a file that was kept, and no other that has its number by now."""
    try:
        if is_ours(descriptor):
            os.close(descriptor)
    except (TypeError, AttributeError):  # the interpreter ends, and has taken this module apart
        pass
