"""Every bit of a packed payload belongs to one value, lies where older logs have it, and comes back as it went in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from collector.ring.packing import (
    MOST_DEPTH,
    Queues,
    pack_call,
    pack_device_phase,
    pack_fetch,
    pack_queues,
    unpack_call,
    unpack_device_phase,
    unpack_fetch,
    unpack_queues,
)
from collector.ring.words import PAYLOAD_MASK

QUEUE_FIELDS = ("state", "out_of_order", "outstanding", "worker_depth", "pin_depth")
# Of each layout: its packing, and for each argument the first bit and how many bits it has.
LAYOUTS: dict[str, tuple[Callable[..., int], dict[str, tuple[int, int]]]] = {
    "queues": (
        pack_queues,
        {
            "state": (48, 2),
            "out_of_order": (36, 12),
            "outstanding": (24, 12),
            "worker_depth": (12, 12),
            "pin_depth": (0, 12),
        },
    ),
    "fetch": (pack_fetch, {"epoch": (16, 40), "loader": (0, 16)}),
    "call": (pack_call, {"serial": (17, 39), "waits": (16, 1), "what": (0, 16)}),
    "device phase": (pack_device_phase, {"place": (48, 8), "time_ns": (0, 48)}),
}


def unpack(layout: str, payload: int) -> dict[str, Any]:
    if layout == "queues":
        return vars(unpack_queues(payload))
    if layout == "fetch":
        return dict(zip(("loader", "epoch"), unpack_fetch(payload), strict=True))
    if layout == "call":
        return dict(zip(("serial", "waits", "what"), unpack_call(payload), strict=True))
    return dict(zip(("place", "time_ns"), unpack_device_phase(payload), strict=True))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_each_bit_lies_in_its_place_and_comes_back(layout: str) -> None:
    pack, fields = LAYOUTS[layout]
    nothing = dict.fromkeys(fields, 0)
    for name, (first, count) in fields.items():
        for bit in range(count):
            payload = pack(**{**nothing, name: 1 << bit})
            assert payload == 1 << (first + bit), (name, bit)
            assert unpack(layout, payload) == {**nothing, name: 1 << bit}, (name, bit)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_all_bits_together_fit_the_payload(layout: str) -> None:
    pack, fields = LAYOUTS[layout]
    full = {name: (1 << count) - 1 for name, (_, count) in fields.items()}
    payload = pack(**full)
    assert unpack(layout, payload) == full
    assert payload & PAYLOAD_MASK == payload


def test_arrays_are_unpacked_as_single_payloads_are() -> None:
    payloads = [pack_queues(2, 1, 5, 7, 3), pack_queues(1, MOST_DEPTH, 0, MOST_DEPTH, 1), 0]
    queues: Queues[Any] = unpack_queues(np.array(payloads, np.int64))
    for place, payload in enumerate(payloads):
        one = unpack_queues(payload)
        assert [int(getattr(queues, name)[place]) for name in QUEUE_FIELDS] == [
            getattr(one, name) for name in QUEUE_FIELDS
        ]
    loaders, epochs = unpack_fetch(np.array([pack_fetch(3, 7)], np.int64))
    assert (loaders.tolist(), epochs.tolist()) == ([7], [3])


def test_a_loader_whose_number_is_too_large_leaves_the_epoch_alone() -> None:
    assert unpack_fetch(pack_fetch(2, 0x1_0005)) == (5, 2)
