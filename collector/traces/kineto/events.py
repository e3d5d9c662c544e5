"""The shape of one event of a Kineto trace, as loose as real files are.

Fields that a file may spell in several ways are unions; `args` stays text until it is needed.
"""

from __future__ import annotations

import msgspec

Loose = int | float | str | None
NO_ARGS = msgspec.Raw(b"")
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding raises: no JSON or of another shape, no UTF-8, nested too deeply."""


class Event(msgspec.Struct, gc=False):
    """One event. Times are whatever the file has; `clock.read_times` turns them into ns."""

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
    """The times of one event as the file spells them, for those that a double cannot hold."""

    ph: str = ""
    ts: msgspec.Raw = NO_ARGS
    dur: msgspec.Raw = NO_ARGS


class Identity(msgspec.Struct, gc=False, rename={"external": "External id", "external_old": "external id"}):
    """What tells one call from the next and links events to each other."""

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
    """The arguments of a [memory] event."""

    address: Loose = None
    change: Loose = None
    device_type: Loose = None
    device: Loose = None
    allocated: Loose = None
    reserved: Loose = None


EVENTS = msgspec.json.Decoder(list[Event])
TIMES = msgspec.json.Decoder(list[Times])
IDENTITY = msgspec.json.Decoder(Identity)
MEMORY = msgspec.json.Decoder(MemoryArgs)
MEMORIES = msgspec.json.Decoder(list[MemoryArgs])
DETAILS = msgspec.json.Decoder(dict[str, msgspec.Raw])
