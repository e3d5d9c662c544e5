"""One event of a Kineto trace, with types as loose as in real files.

Fields with several possible spellings are unions; `args` stays text until needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import msgspec
import numpy as np
from msgspec.json import Decoder

from collector.format.intervals import Ints

T = TypeVar("T")
Loose = int | float | str | None
NO_ID = -1
_LONGEST_ID = 66
"""64 binary digits with their prefix: a longer text is no id, and is not parsed."""
NO_ARGS = msgspec.Raw(b"")
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Errors of the decoder: no JSON or wrong structure, no UTF-8, nested too deeply."""


class Event(msgspec.Struct, gc=False):
    """One event. Times are unconverted; `clock.py` converts them to ns."""

    ph: str = ""
    name: Loose = ""
    cat: str | None = None
    pid: Loose = None
    tid: Loose = None
    ts: Loose = None
    dur: Loose = None
    id: Loose = None
    args: msgspec.Raw = NO_ARGS


class Times(msgspec.Struct, gc=False):
    """The times of one event in the file's spelling, for times that a double cannot hold exactly."""

    ph: str = ""
    ts: msgspec.Raw = NO_ARGS
    dur: msgspec.Raw = NO_ARGS


class Identity(msgspec.Struct, gc=False, rename={"external": "External id", "external_old": "external id"}):
    correlation: Loose = None
    external: Loose = None
    external_old: Loose = None
    sequence: Loose = msgspec.field(default=None, name="Sequence number")


class MemoryArgs(
    msgspec.Struct,
    gc=False,
    rename={
        "address": "Addr",
        "change": "Bytes",
        "device_type": "Device Type",
        "device": "Device Id",
        "allocated": "Total Allocated",
        "reserved": "Total Reserved",
    },
):
    address: Loose = None
    change: Loose = None
    device_type: Loose = None
    device: Loose = None
    allocated: Loose = None
    reserved: Loose = None


EVENTS = Decoder(list[Event])
TIMES = Decoder(list[Times])
IDENTITIES = Decoder(list[Identity])
MEMORIES = Decoder(list[MemoryArgs])
DETAILS = Decoder(dict[str, msgspec.Raw])


@dataclass
class Chunk:
    """Some events, and the text from which they were decoded (a JSON list)."""

    events: list[Event]
    text: bytes

    @cached_property
    def exact(self) -> list[Times]:
        return TIMES.decode(self.text)


def decode_each(raws: Sequence[bytes], decoder: Decoder[list[T]]) -> Sequence[T | None]:
    """Return the decoded texts, None for an unreadable text. If decoding all at once fails, each is decoded alone."""
    with suppress(*UNREADABLE):
        found = decoder.decode(b"[" + b",".join(raws) + b"]")
        if len(found) == len(raws):
            return found
    if len(raws) == 1:
        return [None]
    return [decode_each([raw], decoder)[0] for raw in raws]


def read_ids(values: Iterable[Loose], absent: int = NO_ID) -> Ints:
    """Return ids as int64. Unsigned 64-bit ids keep their bits, None becomes `absent`, and a value that is not a number
    becomes -1.

    numpy gets the type explicitly. Otherwise it would turn all ids into texts as long as the longest.
    """
    items = [absent if value is None else value for value in values]
    if set(map(type, items)) <= {int}:
        try:
            return np.array(items, np.int64)
        except OverflowError:
            pass
    return np.array([absent if value == absent else read_id(value) for value in items], np.int64)


def read_id(value: Loose) -> int:
    """Return one id as a signed 64-bit integer, -1 if it is no number."""
    if isinstance(value, str) and len(value) > _LONGEST_ID:
        return NO_ID
    try:
        number = int(value, 0) if isinstance(value, str) else int(value if value is not None else NO_ID)
    except (ValueError, OverflowError):
        return NO_ID
    number &= (1 << 64) - 1
    return number - (1 << 64) if number >= 1 << 63 else number
