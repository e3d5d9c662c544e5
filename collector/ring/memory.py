"""Memory and descriptors of the event logs, which stay with Stepscope whatever the script or another process does.

Memory that two processes share must not be truncated, as a file can be. On Linux the memory is an anonymous file,
sealed against a change of its size; the sidecar inherits its descriptor. Elsewhere the memory is an ordinary file. The
file is mapped without mmap.mmap, which keeps a descriptor for as long as anything can still reach the mapping.

A script may close every descriptor that it does not know, as a daemon does. Its next files then get the same numbers.
Stepscope never uses the offset of a file, so an odd offset marks a file as Stepscope's. If a script has closed stdin,
stdout or stderr, no file of Stepscope may take that number, since other code would write to the file.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref
from pathlib import Path
from typing import Any

from collector.format.schema.inside import open_inside
from collector.format.schema.removal import remove_file

MARK = 0x5354_5257
_FIRST = 3
_NO_RESERVE = 0x4000
_FIXED = 0x10
_FAILED = ctypes.c_void_p(-1).value


def can_share() -> bool:
    return hasattr(os, "memfd_create") and os.path.isdir("/proc/self/fd")


def create_file(path: Path, size: int) -> int:
    """Create a file of `size` bytes and return its descriptor, marked by `keep`. Raise OSError without room, or if the
    file exists.

    The blocks are reserved: on a full disk a record would be lost later, and a store to mapped memory would be SIGBUS.
    """
    descriptor = open_inside(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(descriptor, 0, size)
        else:  # macOS
            with open(descriptor, "wb", closefd=False) as file:
                file.write(bytes(size))
        return keep(descriptor)
    except OSError:
        remove_file(path)
        os.close(descriptor)
        raise


def create_shared(size: int) -> int:
    """Return a descriptor of new shared memory of `size` bytes. Raise OSError if there is none."""
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
    """A file mapped into memory, read and written as `view`. The file is unmapped when no reference to a view is left."""

    def __init__(self, descriptor: int, size: int) -> None:
        self._size = size
        self._address = _call_mmap(None, size, mmap.MAP_SHARED, descriptor)
        block = (ctypes.c_char * size).from_address(self._address)
        self._taken_away = weakref.finalize(block, _library().munmap, ctypes.c_void_p(self._address), size)
        self._taken_away.atexit = False  # daemon threads may still write to it
        self.view = memoryview(block).cast("B")

    def move(self, descriptor: int) -> None:
        """Copy the contents to a file of the same size, and map it at the same address. OSError passes through.

        Writes of other threads during the move may be lost.
        """
        written = 0
        while written < self._size:
            written += os.pwrite(descriptor, self.view[written:], written)
        _call_mmap(self._address, self._size, mmap.MAP_SHARED | _FIXED, descriptor)

    def detach(self) -> None:
        """Release the file. Later writes to a view reach no process, and take no memory."""
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
    """Mark an open file as Stepscope's and return its descriptor.

    A file with the number of stdin, stdout or stderr gets a new descriptor. OSError passes through; the file is then
    still open.
    """
    os.lseek(descriptor, MARK, os.SEEK_SET)
    if descriptor >= _FIRST:
        return descriptor
    import fcntl  # not everywhere, and hardly ever needed

    moved: int = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _FIRST)
    os.close(descriptor)
    return moved


def is_ours(descriptor: int) -> bool:
    """Return whether a descriptor still refers to a file marked by `keep`."""
    try:
        return os.lseek(descriptor, 0, os.SEEK_CUR) == MARK
    except OSError:
        return False


def close_ours(descriptor: int) -> None:
    """Close a file marked by `keep`. Another file that has taken its number stays open."""
    try:
        if is_ours(descriptor):
            os.close(descriptor)
    except (TypeError, AttributeError):  # the interpreter ends, and has taken this module apart
        pass
