"""Pack several values into the payload of one word. Each layout is defined once, its writer beside its reader.

The log of a killed training is read by the version that recovers it, so a layout never changes; a new layout gets a new
code. `unpack_queues` and `unpack_fetch` take one payload or an array of payloads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

Payloads = TypeVar("Payloads", int, npt.NDArray[np.int64])

DEPTH_BITS = 12
MOST_DEPTH = (1 << DEPTH_BITS) - 1
"""Largest queue depth that can be written; a greater depth is written as this."""
NOT_READY, READY, READY_UNKNOWN = range(3)
LOADER_BITS = 16
_LOADER_MASK = (1 << LOADER_BITS) - 1
_WAIT_BIT = 16
_SERIAL_SHIFT = 17
_TIME_BITS = 48


@dataclass(frozen=True)
class Queues(Generic[Payloads]):
    """The queues of a DataLoader when a batch was requested. `state` says whether the next batch was ready: NOT_READY,
    READY or READY_UNKNOWN. The other fields count batches, in their order: received early, not received yet, and in the
    queues of the workers and of the pin thread.
    """

    state: Payloads
    out_of_order: Payloads
    outstanding: Payloads
    worker_depth: Payloads
    pin_depth: Payloads


def pack_queues(state: int, out_of_order: int, outstanding: int, worker_depth: int, pin_depth: int) -> int:
    """Return the payload of the word QUEUE, from the fields of `Queues`. The counts lie between 0 and MOST_DEPTH."""
    return state << 48 | out_of_order << 36 | outstanding << 24 | worker_depth << 12 | pin_depth


def unpack_queues(payload: Payloads) -> Queues[Payloads]:
    return Queues(
        payload >> 48 & 3,
        payload >> 36 & MOST_DEPTH,
        payload >> 24 & MOST_DEPTH,
        payload >> 12 & MOST_DEPTH,
        payload & MOST_DEPTH,
    )


def pack_fetch(epoch: int, loader: int) -> int:
    return epoch << LOADER_BITS | loader & _LOADER_MASK


def unpack_fetch(payload: Payloads) -> tuple[Payloads, Payloads]:
    """Return loader number and epoch from the payload of the word LOADER."""
    return payload & _LOADER_MASK, payload >> LOADER_BITS


def pack_call(serial: int, waits: bool, what: int) -> int:
    """Return the payload of CALLED. `what` is the collective's index in the notes; with `waits`, a wait will follow."""
    return serial << _SERIAL_SHIFT | waits << _WAIT_BIT | what


def unpack_call(payload: int) -> tuple[int, bool, int]:
    return payload >> _SERIAL_SHIFT, bool(payload >> _WAIT_BIT & 1), payload & (1 << _WAIT_BIT) - 1


def pack_device_phase(place: int, time_ns: int) -> int:
    return place << _TIME_BITS | time_ns


def unpack_device_phase(payload: int) -> tuple[int, int]:
    return payload >> _TIME_BITS, payload & (1 << _TIME_BITS) - 1
