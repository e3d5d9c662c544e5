"""The bytes of a trace file, block by block, unpacked if compressed."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO

from collector.format.schema.errors import TraceError
from collector.traces.format import Progress, ignore
from collector.traces.limits import ReadLimits

_zlib: Any = importlib.import_module("isal.isal_zlib" if importlib.util.find_spec("isal") else "zlib")

BLOCK_BYTES = 4 << 20
# A trace is compressed to about a twentieth. A large file that unpacks to far more is an attack and no trace.
BOMB_BYTES = 1 << 30
BOMB_RATIO = 250
_USUAL_RATIO = 15
_PACKED_BYTES = 1 << 18
_LEAST_BYTES = 1 << 20
_FIRST_BYTES = 1 << 9
_GZIP_BITS = 31
_HEAD_BYTES = 65_536
_SMALL_BYTES = 256 << 20
_GZIP_MAGIC = b"\x1f\x8b"


class Source:
    """A trace file. `read_blocks` yields its content. Afterwards `truncated` is the reason for an early end, or ""."""

    def __init__(self, path: Path, on_progress: Progress = ignore, limits: ReadLimits | None = None) -> None:
        self.path = path
        self.truncated = ""
        self._on_progress = on_progress
        self._limits = limits or ReadLimits()

    def guess_bytes(self) -> int:
        """Return the approximate length of the content in bytes; 0 if the file cannot be read."""
        try:
            with self.path.open("rb") as raw:
                return self.path.stat().st_size * (_USUAL_RATIO if raw.read(2) == _GZIP_MAGIC else 1)
        except OSError:
            return 0

    def read_blocks(self) -> Iterator[bytes]:
        """Yield the content. Raises TraceError for a file that cannot be read, a gzip bomb, or beyond the limits."""
        try:
            with self.path.open("rb") as raw:
                size = max(self.path.stat().st_size, 1)
                packed = raw.read(2) == _GZIP_MAGIC
                raw.seek(0)
                plain = iter(lambda: raw.read(BLOCK_BYTES), b"")
                read_bytes = 0
                for block in _read_beside(self._read_packed(raw)) if packed else plain:
                    read_bytes += len(block)
                    self._limits.check(self.path, read_bytes)
                    self._on_progress(min(raw.tell() / size, 1.0))
                    yield block
        except OSError as error:
            raise TraceError(f"{self.path} cannot be read: {error.strerror or error}") from None

    def _read_packed(self, raw: BinaryIO) -> Iterator[bytes]:
        """Yield the content of a gzip file, member by member. Content that was unpacked before a fault is kept.

        An unpacker copies the data after its member. A file may have 100,000 members, so each unpacker gets little data
        at first.
        """
        engine, size, unpacked, yielded, waiting = None, _FIRST_BYTES, 0, 0, list[bytes]()
        try:
            while data := raw.read(size):
                size = min(4 * size, _PACKED_BYTES)
                while data := data if engine else data.lstrip(b"\0"):  # zeros may stand between members
                    engine = engine or _zlib.decompressobj(_GZIP_BITS)
                    block = engine.decompress(data, BLOCK_BYTES)
                    data = engine.unused_data if engine.eof else engine.unconsumed_tail
                    engine, size = (None, _FIRST_BYTES) if engine.eof else (engine, size)
                    unpacked += len(block)
                    self._check_bomb(unpacked, raw.tell())
                    waiting.append(block)
                    if unpacked - yielded >= _LEAST_BYTES:
                        yield b"".join(waiting)
                        yielded, waiting = unpacked, []
        except _zlib.error as error:
            self.truncated = f"the gzip data is damaged: {error}"
        if waiting:
            yield b"".join(waiting)
        if engine and not self.truncated:
            self.truncated = "the gzip data ends early"

    def _check_bomb(self, unpacked: int, packed: int) -> None:
        if unpacked > BOMB_BYTES and unpacked > BOMB_RATIO * packed:
            raise TraceError(f"{self.path} unpacks to more than {BOMB_RATIO} times its size; it is not read further")


def read_small(path: Path, is_mine: Callable[[bytes], bool], what: str) -> bytes | None:
    """Return a file's content if `is_mine` accepts its head. TraceError if it is too large for a `what`."""
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
        if not is_mine(head):
            return None
        data = head + file.read(_SMALL_BYTES + 1 - len(head))
    if len(data) > _SMALL_BYTES:
        raise TraceError(f"{path} is larger than {_SMALL_BYTES >> 20} MiB, which no {what} is")
    return data


def _read_beside(blocks: Iterator[bytes]) -> Generator[bytes, None, None]:
    """Yield blocks. A thread unpacks the next one meanwhile, without the interpreter lock."""
    thread = ThreadPoolExecutor(1)
    try:
        coming = thread.submit(next, blocks, None)
        while (block := coming.result()) is not None:
            coming = thread.submit(next, blocks, None)
            yield block
    finally:
        thread.shutdown(wait=False)  # Python drops a Ctrl-C that comes while a generator waits at its own end
