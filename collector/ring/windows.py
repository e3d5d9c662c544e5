"""Detailed windows: the order to take one, on its way from the sidecar to the training thread, and what one leaves.

The order is one word of the log's header: `serial << 56 | trigger << 52 | first << 16 | count`. The training thread compares
it with the last one when a step ends and takes it when it differs, so a new order replaces one that was not carried out
yet; the serial makes the same order, given again, another word.
A window leaves a Kineto trace in `events/`, and beside it a note that says that the trace is whole.
"""

from __future__ import annotations

import dataclasses
import json
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from collector.format.schema.control import MOST_FIRST, build_request
from collector.format.schema.inside import open_inside
from collector.format.schema.reading import read_small_text
from collector.format.schema.writing import replace_text
from collector.format.words import TRIGGERS
from collector.ring.words import HEADER_BYTES, ORDER_SLOT

_NOTE_SUFFIX = ".note.json"
_PREFIX = "window-"


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


@dataclass(frozen=True)
class WindowNote:
    """Steps `first_step` and following, one for each end in `ends_unix_ns`; `stall_ns` is what the window cost."""

    first_step: int
    start_unix_ns: int
    end_unix_ns: int
    ends_unix_ns: tuple[int, ...]
    stall_ns: int
    trigger: str = "option"


def trace_file(events: Path, first_step: int) -> Path:
    return events / f"{_PREFIX}{first_step:09d}.trace.json"


def write_window(events: Path, note: WindowNote) -> None:
    """Write the note, whole or not at all. OSError passes through."""
    path = events / f"{_PREFIX}{note.first_step:09d}{_NOTE_SUFFIX}"
    replace_text(path, json.dumps(dataclasses.asdict(note)))


def find_windows(events: Path) -> tuple[Path, ...]:
    """Return the notes of all windows, in order of their steps."""
    return tuple(sorted(events.glob(f"{_PREFIX}*{_NOTE_SUFFIX}")))


def read_window(path: Path) -> WindowNote:
    """Read a note. OSError or ValueError if it is damaged."""
    raw = json.loads(read_small_text(path))
    try:
        return WindowNote(**{**raw, "ends_unix_ns": tuple(raw["ends_unix_ns"])})
    except (TypeError, KeyError) as error:
        raise ValueError(f"{path} is damaged: {error}") from None
