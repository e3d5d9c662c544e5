"""The contents of a stage log: records of the work of a DataLoader worker (or the pin thread), with times.

One ring per writer, `events/stages-….ring`. Every record begins with its kind; times are perf_counter_ns readings,
which on Linux every process of the machine shares.

    BATCH  a batch from the wait for its index to the end of collate
    PART   the time of one transform in the batch above, without transforms that it called
    SEND   a batch on its way from the worker to the training process
    SPAN   any other interval: setup, cleanup, pinning
    NAME   the name of a transform, before the first record that uses it
    NOTE   a sentence for the user of the run
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from collector.format import words
from collector.ring.records import RecordWriter, encode_text

BATCH, PART, SEND, SPAN, NAME, NOTE = 1, 2, 3, 4, 5, 6
FIELDS = 17
CAPACITY = 4096
UNKNOWN = -1
RING_PATTERN = "stages-*.ring"

STAGES, KINDS = words.STAGES, words.STAGE_KINDS

_TEXT_WORDS = FIELDS - 2
_OPEN_BITS = 24
_MOST_OPENED = (1 << _OPEN_BITS) - 2
_MOST_OPEN_NS = (1 << (62 - _OPEN_BITS)) - 1


class Batch(NamedTuple):
    """The record of a batch. `asked_ns` is when the wait for the batch's index began, `picked_ns` when the index
    arrived. `read_ns` excludes the transforms.

    `timed` is 1 if the samples were timed one by one, else 0; then `read_ns` is all of the work before collate.
    `longest_ns` is the time of the longest sample, `longest_item` its index, both UNKNOWN if not timed. `opened` is a
    result of `pack_opened`, 0 if unknown, as in logs of earlier versions.
    """

    loader: int
    epoch: int
    batch: int
    asked_ns: int
    picked_ns: int
    done_ns: int
    timed: int
    read_ns: int
    read_cpu_ns: int
    collate_ns: int
    collate_cpu_ns: int
    items: int
    longest_ns: int
    longest_item: int
    read_bytes: int
    opened: int = 0


class Part(NamedTuple):
    loader: int
    epoch: int
    batch: int
    name: int
    duration_ns: int
    cpu_ns: int
    calls: int
    longest_ns: int
    longest_item: int


class Send(NamedTuple):
    """The times at which a batch was taken from the buffer, was pickled, had the pipe's lock, and was written. `cpu_ns`
    is the processor time of all that, `write_cpu_ns` that of the writing.
    """

    loader: int
    epoch: int
    batch: int
    taken_ns: int
    pickled_ns: int
    locked_ns: int
    written_ns: int
    write_cpu_ns: int
    cpu_ns: int
    bytes: int


class Span(NamedTuple):
    """Any other interval of a stage. `stage` and `kind` are indexes into STAGES and KINDS."""

    loader: int
    epoch: int
    batch: int
    stage: int
    kind: int
    start_ns: int
    duration_ns: int
    cpu_ns: int
    items: int
    bytes: int


class StageLog:
    """The writer of a stage log; any thread may write. `replica` is the worker number, -1 for the training process."""

    def __init__(self, path: Path, replica: int) -> None:
        self._ring = RecordWriter(path, FIELDS, CAPACITY, (replica,))
        self._append = self._ring.append
        self._names: dict[str, int] = {}
        self._lock = threading.Lock()

    def add(self, kind: int, record: Sequence[int]) -> None:
        self._append(kind, *record)

    def name(self, text: str) -> int:
        """Return the number of a name, written at its first use. A long name is cut."""
        with self._lock:
            number = self._names.get(text)
            if number is None:
                number = self._names[text] = len(self._names)
                self._append(NAME, number, *encode_text(text, _TEXT_WORDS))
        return number

    def note(self, text: str) -> None:
        """Write a sentence for the user of the run. A long sentence is cut."""
        self._append(NOTE, 0, *encode_text(text, _TEXT_WORDS))

    def close(self) -> None:
        self._ring.close()


def pack_opened(files: int, duration_ns: int) -> int:
    """Return the number of opened files and the ns that it took to open them, as one word that is not 0."""
    return (min(duration_ns, _MOST_OPEN_NS) << _OPEN_BITS) | (min(files, _MOST_OPENED) + 1)


def unpack_opened(word: int) -> tuple[int, int] | None:
    """Return the number of opened files and the ns that it took to open them; None for the word 0, which means unknown."""
    return (max((word & ((1 << _OPEN_BITS) - 1)) - 1, 0), word >> _OPEN_BITS) if word > 0 else None
