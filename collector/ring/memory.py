"""Memory and descriptors that stay ours, whatever the script or another process does.

Memory that two processes share must not be cut off, as a file can be. On Linux it is an anonymous file in memory, sealed
against a change of its size; the recorder process inherits its descriptor. Elsewhere it is an ordinary file. It is mapped
without mmap.mmap, which keeps a descriptor for as long as anybody can still reach the mapping.

A script may close every descriptor that it does not know, as a daemon does; what it opens then gets their numbers. Nothing
of ours uses the offset of a file, so an odd one marks a file as ours. And what a script has closed of stdin, stdout and
stderr must not become a file of ours: others would write to it.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref
from typing import Any

MARK = 0x5354_5257
_FIRST = 3
_NO_RESERVE = 0x4000
_FIXED = 0x10
_FAILED = ctypes.c_void_p(-1).value


def can_share() -> bool:
    """Say whether there is memory here that another process can be given."""
    return hasattr(os, "memfd_create") and os.path.isdir("/proc/self/fd")


def create_shared(size: int) -> int:
    """Return a descriptor of new memory of a size. OSError if there is none."""
    import fcntl

    descriptor = os.memfd_create("stepscope", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.posix_fallocate(descriptor, 0, size)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


class Mapping:
    """A file in memory, to be read and written as `view`; taken away when nobody holds a view any more."""

    def __init__(self, descriptor: int, size: int) -> None:
        """Map the whole file. OSError if it cannot be."""
        self._size = size
        self._address = _call_mmap(None, size, mmap.MAP_SHARED, descriptor)
        block = (ctypes.c_char * size).from_address(self._address)
        self._taken_away = weakref.finalize(block, _library().munmap, ctypes.c_void_p(self._address), size)
        self._taken_away.atexit = False  # daemon threads may still write
        self.view = memoryview(block).cast("B")

    def move(self, descriptor: int) -> None:
        """Take all that is here to another file of the same size, and stay at the same place in memory. OSError passes through.

        What a thread writes meanwhile may be lost.
        """
        written = 0
        while written < self._size:
            written += os.pwrite(descriptor, self.view[written:], written)
        _call_mmap(self._address, self._size, mmap.MAP_SHARED | _FIXED, descriptor)

    def detach(self) -> None:
        """Let go of the file: what anybody still writes to a view is seen by nobody, and takes no memory from now on."""
        _call_mmap(self._address, self._size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _FIXED | _NO_RESERVE, -1)


def _call_mmap(address: int | None, size: int, flags: int, descriptor: int) -> int:
    where = _library().mmap(address, size, mmap.PROT_READ | mmap.PROT_WRITE, flags, descriptor, 0)
    if where == _FAILED:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return int(where)


def _library() -> Any:
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    library.mmap.argtypes = (
        ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64,
    )  # fmt: skip
    library.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    return library


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
