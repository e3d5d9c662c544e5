"""Notes on compilations by torch.compile, passed to the sidecar as lines of JSON in `events/compiles.jsonl`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from collector.format.schema.inside import open_inside

FILE = "compiles.jsonl"


@dataclass(frozen=True)
class CompileNote:
    """A compile, recompile or graph_break (`kind`), noticed after the end of step `step`."""

    step: int
    kind: str
    start_unix_ns: int
    duration_ns: int
    name: str
    reason: str | None = None


def write_compiles(events: Path, notes: Iterable[CompileNote]) -> None:
    text = "".join(json.dumps(asdict(note)) + "\n" for note in notes)
    with open(events / FILE, "a", encoding="utf-8", opener=open_inside) as file:
        file.write(text)


def read_compiles(events: Path, offset: int) -> tuple[list[CompileNote], int]:
    """Return the notes after byte `offset`, and the offset for the next call: the end of the last complete line.
    Damaged lines are left out. Without a file there are no notes, and the offset stays.
    """
    try:
        with open(events / FILE, "rb", opener=open_inside) as file:
            file.seek(offset)
            data = file.read()
    except OSError:
        return [], offset
    whole = data[: data.rfind(b"\n") + 1]
    notes = (_parse(line) for line in whole.splitlines())
    return [note for note in notes if note is not None], offset + len(whole)


def _parse(line: bytes) -> CompileNote | None:
    try:
        return CompileNote(**json.loads(line))
    except (ValueError, TypeError):
        return None
