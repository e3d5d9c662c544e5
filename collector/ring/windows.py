"""Pass orders for detailed windows from the sidecar to the training thread, and the note of each window back.

An order is one word of the log's header: `serial << 56 | trigger << 52 | first << 16 | count`. At the end of each step,
the training thread compares the word with the last order and takes a new one. A new order thus replaces an order that
has not been carried out; the serial makes a repeated order a different word. A window leaves a Kineto trace in
`events/`, and beside it a note which shows that the trace is complete.
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
from collector.ring.words import HEADER_BYTES, ORDER_SLOT, WINDOW_SLOT

_NOTE_SUFFIX = ".note.json"
_PREFIX = "window-"


@dataclass(frozen=True)
class Order:
    """An order to open a window for `count` steps before step `first`, or at the next step if `first` has passed.

    `serial` distinguishes a repeated order from the earlier one.
    """

    first: int
    count: int
    trigger: str = "control"
    serial: int = field(default=0, compare=False)

    @property
    def last(self) -> int:
        return self.first + self.count - 1


def send_order(log: Path, order: Order) -> None:
    """Write an order into a word log's header. Raise OSError without a log, ValueError if the order does not fit."""
    build_request(order.first, order.count)
    with _open_header(log) as header:
        serial = (header[ORDER_SLOT] >> 56) % 127 + 1
        word = serial << 56 | TRIGGERS.index(order.trigger) << 52 | order.first << 16 | order.count
        header[ORDER_SLOT] = word


def read_order(log: Path) -> Order | None:
    """Return the order that was sent last, None if none was. Raise OSError if there is no log."""
    with _open_header(log) as header:
        word = header[ORDER_SLOT]
    return decode_order(word) if word else None


@contextmanager
def _open_header(log: Path) -> Iterator[memoryview]:
    memory = _map_header(log, os.O_RDWR, mmap.PROT_READ | mmap.PROT_WRITE)
    with memory, memoryview(memory) as whole, whole.cast("q") as header:
        yield header


def _map_header(log: Path, flags: int, prot: int) -> mmap.mmap:
    descriptor = open_inside(log, flags)
    try:
        return mmap.mmap(descriptor, HEADER_BYTES, prot=prot)
    finally:
        os.close(descriptor)


NO_WINDOW, WINDOW_NEAR, WINDOW_OPEN = range(3)
"""States of the detailed window. It is near from one step before it opens."""


class WindowState:
    """The state of the detailed window of a running training, read from the memory of the training's log."""

    def __init__(self, log: Path) -> None:
        self._memory = _map_header(log, os.O_RDONLY, mmap.PROT_READ)
        self._words = memoryview(self._memory).cast("q")

    def read(self) -> int:
        return self._words[WINDOW_SLOT]


def decode_order(word: int) -> Order:
    return Order(word >> 16 & MOST_FIRST, word & 0xFFFF, TRIGGERS[word >> 52 & 0xF], word >> 56)


@dataclass(frozen=True)
class WindowNote:
    """The note of a window. `ends_unix_ns` has the end of each of its steps.

    `stall_ns` is the time for which opening the window and saving its trace held the training up. With `by_calls`, its
    steps are calls of a model or batches, from before any training.
    """

    first_step: int
    start_unix_ns: int
    end_unix_ns: int
    ends_unix_ns: tuple[int, ...]
    stall_ns: int
    trigger: str = "option"
    by_calls: bool = False


def trace_file(events: Path, first_step: int) -> Path:
    return events / f"{_PREFIX}{first_step:09d}.trace.json"


def write_window(events: Path, note: WindowNote) -> None:
    """Write the note completely or not at all. OSError passes through."""
    path = events / f"{_PREFIX}{note.first_step:09d}{_NOTE_SUFFIX}"
    replace_text(path, json.dumps(dataclasses.asdict(note)))


def find_windows(events: Path) -> tuple[Path, ...]:
    return tuple(sorted(events.glob(f"{_PREFIX}*{_NOTE_SUFFIX}")))


def read_window(path: Path) -> WindowNote:
    """Read the note of a window. Raise OSError if the file is missing, ValueError if it is damaged."""
    raw = json.loads(read_small_text(path))
    try:
        return WindowNote(**{**raw, "ends_unix_ns": tuple(raw["ends_unix_ns"])})
    except (TypeError, KeyError) as error:
        raise ValueError(f"{path} is damaged: {error}") from None
