"""The wire format of protobuf, and the packets of a trace file one by one."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from collector.format.schema.errors import TraceError
from collector.traces.source import Source

MOST_BYTES = 64 << 20
"""The greatest size of a packet."""
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
Fields = list[tuple[int, Any]]
"""The fields of a message in order. The value is bytes if the tag is of BYTES, else the number without a sign."""
_SIZES = {VARINT: 0, FIXED64: 8, BYTES: 0, FIXED32: 4}
_LONGEST_VARINT = 10
_MOST_FIELDS = 1 << 29
_PACKET = 1 << 3 | BYTES
_ENDS_IN_ZEROS = "the file ends in zeros"


class WireError(ValueError):
    """The bytes are no message, or none that may be read."""


def read_fields(data: bytes) -> Fields:
    """Return the fields of a message. Raises WireError if the bytes are none."""
    found: Fields = []
    at, end = 0, len(data)
    try:
        while at < end:
            key = data[at]
            at += 1
            if key > 127:
                key, at = read_varint(data, at - 1)
            kind = key & 7
            if kind in (VARINT, BYTES):
                number = data[at]
                at += 1
                if number > 127:
                    number, at = read_varint(data, at - 1)
                if kind == VARINT:
                    found.append((key, number))
                else:
                    at += number
                    found.append((key, data[at - number : at]))
            else:
                size = _SIZES.get(kind, 0)
                found.append((key, int.from_bytes(data[at : at + size], "little")))
                at += size
            if key < 8 or kind not in _SIZES:
                raise WireError(f"field {key >> 3} of the packet is of type {kind}, which no packet has")
    except IndexError:
        at = end + 1
    if at > end:
        raise WireError("a field ends beyond its packet")
    return found


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number at a place and the place behind it. IndexError if the data ends before."""
    number = 0
    for shift in range(0, 7 * _LONGEST_VARINT, 7):
        byte = data[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number & (1 << 64) - 1, at
    raise WireError(f"a number is longer than {_LONGEST_VARINT} bytes")


def to_signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number


def to_double(bits: int) -> float:
    value: float = struct.unpack("<d", struct.pack("<Q", bits))[0]
    return value


@dataclass
class PacketReader:
    """The packets of a file. `offset` is the place of the packet being read, in bytes of the unpacked file.

    `truncated` is afterwards the reason for an early end, or "".
    """

    source: Source
    offset: int = 0
    truncated: str = ""
    _text: bytes = b""
    _after: int = 0

    def __post_init__(self) -> None:
        self._blocks = self.source.read_blocks()

    def read(self) -> Iterator[bytes]:
        """Yield the packets. Raises TraceError for a file that is damaged before its end."""
        for block in self._blocks:
            self._text, at = self._text + block, 0
            while (found := self._find(self._text, at)) is not None:
                start, self._after = found
                if start:
                    yield self._text[start : self._after]
                self.offset += self._after - at
                at = self._after
            self._text = self._text[at:]
            if len(self._text) > MOST_BYTES:
                raise self.refuse(f"a packet is longer than {MOST_BYTES >> 20} MiB")
        if self._text:
            self.truncated = "the last packet ends early" if self._text.strip(b"\0") else _ENDS_IN_ZEROS
        self.truncated = self.source.truncated or self.truncated

    def _find(self, text: bytes, at: int) -> tuple[int, int] | None:
        """Return where the packet at a place begins and ends, (0, its end) for another field; None for a cut one."""
        try:
            key, start = read_varint(text, at)
            if not key and not text[at:].strip(b"\0"):
                return None
            if not 8 <= key < _MOST_FIELDS << 3 or key & 7 not in _SIZES:
                raise WireError("what follows is no packet")
            number, start = read_varint(text, start) if key & 7 in (VARINT, BYTES) else (0, start)
        except IndexError:
            return None
        except WireError as error:
            raise self.refuse(str(error)) from None
        end = start + (number if key & 7 == BYTES else _SIZES[key & 7])
        if end > len(text):
            return None
        return (start if key == _PACKET else 0), end

    def stops(self, packet: bytes) -> bool:
        """Return whether nothing but zeros follows from some place in a packet on, as after a loss of power."""
        if not packet.endswith(b"\0") or self._text[self._after :].strip(b"\0"):
            return False
        if any(block.strip(b"\0") for block in self._blocks):
            return False
        self.truncated = _ENDS_IN_ZEROS
        return True

    def refuse(self, reason: str) -> TraceError:
        return TraceError(
            f"{self.source.path} is broken at byte {self.offset}: {reason}; export the trace again, or mend the file there"
        )
