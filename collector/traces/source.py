"""The bytes of a trace file, block by block, unpacked where the file is packed."""

from __future__ import annotations

import importlib.util
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from collector.format.schema.errors import TraceError
from collector.traces.format import Progress

_fast: Any = importlib.import_module("isal.isal_zlib") if importlib.util.find_spec("isal") else None

BLOCK_BYTES = 4 << 20
# A trace packs to about a twentieth. What unpacks to far more than that, and is large, is no trace but a trap.
BOMB_BYTES = 1 << 30
BOMB_RATIO = 250
_PACKED_BYTES = 1 << 18
_GZIP_BITS = 31
_UNPACK_ERRORS: tuple[type[Exception], ...] = (zlib.error, *([_fast.error] if _fast else []))
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
        """Unpack one member after the other; what was unpacked before a fault is kept."""
        engine: Any = None
        unpacked = 0
        try:
            while data := raw.read(_PACKED_BYTES):
                while data:
                    engine = engine or _make_unpacker()
                    block = engine.decompress(data, BLOCK_BYTES)
                    unpacked += len(block)
                    self._check_bomb(unpacked, raw.tell())
                    if block:
                        yield block
                    data = engine.unused_data.lstrip(b"\0") if engine.eof else engine.unconsumed_tail
                    engine = None if engine.eof else engine
                self._report(raw.tell() / size)
        except _UNPACK_ERRORS as error:
            self.truncated = f"the gzip data is damaged: {error}"
            return
        if engine is not None:
            self.truncated = "the gzip data ends early"

    def _check_bomb(self, unpacked: int, packed: int) -> None:
        if unpacked > BOMB_BYTES and unpacked > BOMB_RATIO * packed:
            raise TraceError(f"{self.path} unpacks to more than {BOMB_RATIO} times its size; it is not read further")

    def _report(self, share: float) -> None:
        if self._on_progress is not None:
            self._on_progress(min(share, 1.0))


def _make_unpacker() -> Any:
    return (_fast or zlib).decompressobj(_GZIP_BITS)
