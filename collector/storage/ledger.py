"""Keep a record of which files of a rank are uploaded, for later upload processes: a hidden file beside its tables."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from collector.format.schema.layout import EVENTS_FOLDER, RANK_FILE
from collector.format.schema.reading import read_small_file
from collector.format.schema.writing import replacing

NAME = ".upload.json"


@dataclass
class UploadLedger:
    """The state of the upload of a rank.

    `files` maps each file at `url` to the size in bytes and the modification time in ns that the local file had when it
    was sent. `shift_ns` was added to the times in the files at the URL. `problem` is why the last attempt failed, "" if
    it succeeded. `is_final`: another attempt would fail, too. `is_taken`: another run is at the URL. `is_done`: the
    rank has ended and all files are uploaded.
    """

    url: str
    files: dict[str, tuple[int, int]] = field(default_factory=dict)
    shift_ns: int = 0
    problem: str = ""
    is_final: bool = False
    is_taken: bool = False
    is_done: bool = False


def read_ledger(rank_folder: Path) -> UploadLedger | None:
    """Return the state of a rank's upload, None if none is stored or it cannot be read."""
    with contextlib.suppress(OSError, ValueError, msgspec.MsgspecError, RecursionError):
        return msgspec.json.decode(read_small_file(rank_folder / NAME), type=UploadLedger)
    return None


def write_ledger(rank_folder: Path, ledger: UploadLedger) -> None:
    """Write the state of the upload. A failure is ignored: it only means that files are uploaded twice."""
    with contextlib.suppress(OSError), replacing(rank_folder / NAME) as file:
        file.write(msgspec.json.encode(ledger))


def list_files(rank_folder: Path) -> dict[str, tuple[int, int]]:
    """Return a rank's files with size and mtime (ns), the manifest last; without `events/` and hidden files."""
    found: dict[str, tuple[int, int]] = {}
    for path in sorted(rank_folder.rglob("*")):
        name = path.relative_to(rank_folder).as_posix()
        if name.startswith(f"{EVENTS_FOLDER}/") or any(piece.startswith(".") for piece in name.split("/")):
            continue
        with contextlib.suppress(OSError):  # parts may be merged at the same time
            state = path.lstat()
            if path.is_file() and not path.is_symlink():
                found[name] = state.st_size, state.st_mtime_ns
    if RANK_FILE in found:
        found[RANK_FILE] = found.pop(RANK_FILE)
    return found


def list_missing(rank_folder: Path, ledger: UploadLedger) -> dict[str, tuple[int, int]]:
    """Return the files of a rank whose current version is not uploaded, as `list_files` does."""
    return {name: state for name, state in list_files(rank_folder).items() if ledger.files.get(name) != state}
