"""A trace of Perfetto as the source of the text of a Kineto trace."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from collector.format.schema.errors import TraceError
from collector.traces.format import ReadOptions, explain_failure
from collector.traces.kineto.scratch import Scratch
from collector.traces.pftrace.events import Converter
from collector.traces.pftrace.spool import Spool
from collector.traces.pftrace.wire import PacketReader, WireError, read_fields, read_varint
from collector.traces.source import BLOCK_BYTES, BOMB_BYTES, BOMB_RATIO, Source

_MOST_FIELD = 1 << 10
"""No field of a packet has this number or a greater one."""


class PftraceSource(Source):
    """The events of a packet file. Raises TraceError for a damaged file."""

    def __init__(self, path: Path, options: ReadOptions) -> None:
        super().__init__(path, options.on_progress, options.limits)
        self._spool = Spool(Scratch(options.scratch))
        self._converter = Converter(self._spool)
        try:
            self._convert(PacketReader(Source(path, options.on_progress, options.limits)))
        except BaseException:
            self._spool.close()
            raise

    def _convert(self, reader: PacketReader) -> None:
        with explain_failure(self.path, lambda: f"at byte {reader.offset:,}"):
            for packet in reader.read():
                try:
                    self._converter.add(packet)
                except WireError as error:
                    if reader.stops(packet):
                        break
                    raise reader.refuse(str(error)) from None
                self._check(reader.offset)
        self.truncated = reader.truncated

    def _check(self, read_bytes: int) -> None:
        if self._spool.size_bytes > self._limits.unpacked_bytes:
            self._limits.check(self.path, self._spool.size_bytes)
        if self._spool.size_bytes > BOMB_BYTES and self._spool.size_bytes > BOMB_RATIO * read_bytes:
            raise TraceError(f"{self.path} unpacks to more than {BOMB_RATIO} times its size; it is not read further")

    def guess_bytes(self) -> int:
        return self._spool.size_bytes

    def read_blocks(self) -> Iterator[bytes]:
        """Yield the text of the trace. That of a file that is cut short has no end."""
        base_ns = (self._spool.base_ns or 0) + (self._converter.clocks.wall_ns or 0)
        waiting, size = [b'{"baseTimeNanoseconds":%d,"traceEvents":[' % base_ns], 0
        written_bytes = 0
        with closing(self._spool):
            for text in self._spool.read(self._converter.tracks):
                waiting.append(text)
                size += len(text)
                if size >= BLOCK_BYTES:
                    written_bytes += size
                    self._limits.check(self.path, written_bytes)
                    yield b"".join(waiting)
                    waiting, size = [], 0
        yield b"".join((*waiting, b"" if self.truncated else b"]}"))


def is_packets(head: bytes) -> bool:
    """Return whether a file that begins so consists of packets."""
    try:
        if head[:1] != b"\n":
            return False
        size, start = read_varint(head, 1)
        keys = [key for key, _ in read_fields(head[start : start + size])]
        return bool(keys) and max(keys) >> 3 < _MOST_FIELD
    except (WireError, IndexError):
        return False
