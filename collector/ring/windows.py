"""What a detailed window leaves in `events/`: a Kineto trace, and beside it a note that says that the trace is whole."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path

from collector.format.schema.reading import read_small_text
from collector.format.schema.writing import replace_text

_NOTE_SUFFIX = ".note.json"
_PREFIX = "window-"


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
