"""The bytes of a trace file, block by block, unpacked where the file is packed.

May import `collector.schema.errors`; isal, if installed, unpacks gzip three times as fast as the standard library.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from collector.schema.errors import TraceError
from collector.traces.format import Progress

BLOCK_BYTES = 4 << 20
# A trace packs to about a twentieth. What unpacks to far more than that, and is large, is no trace but a trap.
BOMB_BYTES = 1 << 30
BOMB_RATIO = 250
_GZIP_MAGIC = b"\x1f\x8b"


class Source:
    """An opened trace file. `read_blocks` yields its content; `truncated` says afterwards why it ended early."""

    def __init__(self, path: Path, on_progress: Progress | None = None) -> None:
        self.path = path
        self.truncated = ""
        self._on_progress = on_progress

    def read_blocks(self) -> Iterator[bytes]:
        """Yield the content in blocks. Raises TraceError if the file cannot be opened or read, or is a gzip bomb."""
        try:
            with self.path.open("rb") as raw:
                size = max(self.path.stat().st_size, 1)
                packed = raw.read(2) == _GZIP_MAGIC
                raw.seek(0)
                yield from self._read_packed(raw, size) if packed else self._read_plain(raw, size)
        except OSError as error:
            raise TraceError(f"{self.path} cannot be read: {error.strerror or error}") from None

    def _read_plain(self, raw: BinaryIO, size: int) -> Iterator[bytes]:
        while block := raw.read(BLOCK_BYTES):
            self._report(raw.tell() / size)
            yield block

    def _read_packed(self, raw: BinaryIO, size: int) -> Iterator[bytes]:
        unpacked = 0
        stream = _open_gzip(raw)
        while True:
            try:
                block = stream.read(BLOCK_BYTES)
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                self.truncated = str(error)
                return
            if not block:
                return
            unpacked += len(block)
            if unpacked > BOMB_BYTES and unpacked > BOMB_RATIO * raw.tell():
                raise TraceError(
                    f"{self.path} unpacks to more than {BOMB_RATIO} times its size; it is not read further"
                )
            self._report(raw.tell() / size)
            yield block

    def _report(self, share: float) -> None:
        if self._on_progress is not None:
            self._on_progress(min(share, 1.0))


def _open_gzip(raw: BinaryIO) -> BinaryIO:
    try:
        from isal import igzip
    except ImportError:
        return gzip.GzipFile(fileobj=raw)  # type: ignore[return-value]
    return igzip.GzipFile(fileobj=raw)  # type: ignore[no-any-return]
