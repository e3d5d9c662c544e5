"""The notes from the training process, of which the sidecar makes rank.json: `rank_<r>/events/notes.json`."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from collector.format.schema.layout import events_path
from collector.format.schema.manifest import Device, Loader, Signal, check_values, encode_text
from collector.format.schema.reading import read_small_text
from collector.format.schema.writing import replace_text
from collector.ring.clock import Clock

NOTES_FILE = "notes.json"
SAVED_FILE = "notes.saved.json"
"""A copy of the notes that survives a loss of power. The sidecar writes it: the training never waits for the disk."""
WORDS_FILE = "words.ring"


@dataclass
class Notes:
    """The recording process, and all facts found since it started.

    `finished` is "" until the recording ends in order, then "complete"; after a crash it stays "". `perf_ns` and
    `unix_ns` are readings of two clocks at one moment, see `Clock`. `signals` maps a name to state and reason.
    """

    rank: int
    pid: int
    pid_started: float | None
    host: str
    started_unix_ns: int
    epoch_unix_ns: int
    perf_ns: int
    unix_ns: int
    options: dict[str, Any] = field(default_factory=dict)
    finished: str = ""
    devices: list[dict[str, Any]] = field(default_factory=list)
    loaders: list[dict[str, Any]] = field(default_factory=list)
    signals: dict[str, dict[str, str]] = field(default_factory=dict)
    warnings: dict[str, str] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    collectives: list[dict[str, Any]] = field(default_factory=list)
    points: dict[str, str] = field(default_factory=dict)
    overhead: dict[str, Any] = field(default_factory=dict)
    cpu_count: int | None = None
    usable_cores: float | None = None
    torch_threads: int | None = None
    terminal: list[int] = field(default_factory=list)
    """The device and number that identify the stderr of the training process among files."""

    @property
    def clock(self) -> Clock:
        return Clock(self.epoch_unix_ns, self.perf_ns, self.unix_ns)


def write_notes(notes: Notes, rank_folder: Path) -> None:
    """Write the notes of a rank, whole or not at all. OSError passes through."""
    replace_text(events_path(rank_folder) / NOTES_FILE, _encode(notes))


def read_notes(rank_folder: Path) -> Notes:
    """Read the notes of a rank, or else their saved copy. OSError or ValueError if neither can be read."""
    try:
        return _read_file(events_path(rank_folder) / NOTES_FILE)
    except (OSError, ValueError):
        with contextlib.suppress(OSError, ValueError):
            return _read_file(events_path(rank_folder) / SAVED_FILE)
        raise


def save_copy(notes: Notes, rank_folder: Path) -> None:
    """Write the copy of the notes and wait until the disk has it. OSError passes through."""
    replace_text(events_path(rank_folder) / SAVED_FILE, _encode(notes), durable=True)


def _encode(notes: Notes) -> str:
    return encode_text(dataclasses.asdict(notes))


def _read_file(path: Path) -> Notes:
    try:
        raw = json.loads(read_small_text(path))
        raw = json.loads(encode_text(raw))  # versions before 0.2.0 wrote half characters as they came
        check_values(raw, "")
        notes = msgspec.convert(raw, Notes)
        _check_entries(notes)
    except (ValueError, TypeError, RecursionError, msgspec.MsgspecError) as error:
        raise ValueError(f"{path} is damaged: {error}") from None
    return notes


def _check_entries(notes: Notes) -> None:
    """Raise msgspec.ValidationError if rank.json could not be written from these notes."""
    msgspec.convert(notes.devices, list[Device])
    msgspec.convert([{"name": name, **entry} for name, entry in notes.signals.items()], list[Signal])
    # NumPy's numbers were noted as text, which the reader of rank.json makes numbers of.
    written = ("batch_size", "prefetch_factor")
    loaders = [
        {name: value for name, value in loader.items() if not (name in written and isinstance(value, str))}
        for loader in notes.loaders
    ]
    msgspec.convert(loaders, list[Loader])
    msgspec.convert(notes.options.get("window", {}), dict[str, int])
