"""The seal of a cache: size and checksum of each of its files, so that one that was cut or changed is never read.

Arrow trusts the files that it maps: a damaged one may end the process, or show slices that never ran.
"""

from __future__ import annotations

import os
import stat
import zlib
from pathlib import Path

import msgspec

SEAL_FILE = "seal.json"
_PIECE_BYTES = 1 << 20
_WHOLE_BYTES = 256 << 20
"""Of a larger file the beginning and the end are looked at: whoever opens a timeline waits for this."""
_ENDS_BYTES = 8 << 20


class BrokenSealError(ValueError):
    """A file of the cache is not as it was written."""


def seal_folder(folder: Path) -> None:
    """Note the files of a folder as they are. OSError passes."""
    sums = {path.name: _sum_file(path) for path in sorted(folder.iterdir())}
    (folder / SEAL_FILE).write_bytes(msgspec.json.encode(sums))


def check_seal(folder: Path) -> None:
    """Raise BrokenSealError or OSError unless the files of a folder are those that were sealed."""
    try:
        _check_regular(folder / SEAL_FILE)
        sums = msgspec.json.decode((folder / SEAL_FILE).read_bytes(), type=dict[str, tuple[int, int]])
    except msgspec.MsgspecError as error:
        raise BrokenSealError(f"{folder / SEAL_FILE}: {error}") from None
    if not sums:
        raise BrokenSealError(f"{folder / SEAL_FILE} names no file")
    for name, known in sums.items():
        if "/" in name or _sum_file(folder / name) != known:
            raise BrokenSealError(f"{folder / name} is not as it was written")


def _sum_file(path: Path) -> tuple[int, int]:
    """Return size and checksum of a regular file."""
    size = _check_regular(path)
    stretches = [(0, size)] if size <= _WHOLE_BYTES else [(0, _ENDS_BYTES), (size - _ENDS_BYTES, size)]
    checksum = 0
    with path.open("rb") as file:
        for begin, end in stretches:
            file.seek(begin)
            while begin < end and (piece := file.read(min(_PIECE_BYTES, end - begin))):
                checksum = zlib.crc32(piece, checksum)
                begin += len(piece)
    return size, checksum


def _check_regular(path: Path) -> int:
    """Return the size of a file. Raises BrokenSealError for what would hold the reader, or lead it elsewhere."""
    found = os.lstat(path)
    if not stat.S_ISREG(found.st_mode):
        raise BrokenSealError(f"{path} is no regular file")
    return found.st_size
