"""An order to take a detailed window, on its way from the sidecar to the training thread: one word of the log's header.

The training thread compares the word with the last one when a step ends and takes it when it differs, so a new order
replaces one that was not carried out yet. The word is `serial << 56 | trigger << 52 | first << 16 | count`; the serial
makes the same order, given again, another word.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from collector.format.schema.control import MOST_FIRST, build_request
from collector.format.schema.inside import open_inside
from collector.format.words import TRIGGERS
from collector.ring.words import HEADER_BYTES, ORDER_SLOT


@dataclass(frozen=True)
class Order:
    """Open a window before step `first`, or at the next step if that has passed, for `count` steps.

    `serial` tells one that was sent from the same, sent again.
    """

    first: int
    count: int
    trigger: str = "control"
    serial: int = field(default=0, compare=False)

    @property
    def last(self) -> int:
        return self.first + self.count - 1


def send_order(log: Path, order: Order) -> None:
    """Put an order into the header of a word log. OSError if it is not there, ValueError if the order does not fit."""
    build_request(order.first, order.count)
    with _open_header(log) as header:
        serial = (header[ORDER_SLOT] >> 56) % 127 + 1
        word = serial << 56 | TRIGGERS.index(order.trigger) << 52 | order.first << 16 | order.count
        header[ORDER_SLOT] = word


def read_order(log: Path) -> Order | None:
    """Return the last order that was sent, None without any. OSError if the log is not there."""
    with _open_header(log) as header:
        word = header[ORDER_SLOT]
    return decode_order(word) if word else None


@contextmanager
def _open_header(log: Path) -> Iterator[memoryview]:
    descriptor = open_inside(log, os.O_RDWR)
    try:
        memory = mmap.mmap(descriptor, HEADER_BYTES)
    finally:
        os.close(descriptor)
    with memory, memoryview(memory) as whole, whole.cast("q") as header:
        yield header


def decode_order(word: int) -> Order:
    """Read the word of an order."""
    return Order(word >> 16 & MOST_FIRST, word & 0xFFFF, TRIGGERS[word >> 52 & 0xF], word >> 56)
