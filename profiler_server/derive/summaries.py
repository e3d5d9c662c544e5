"""What the list shows of each run, on disk between two servers: a base directory of thousands is listed at once.

One file holds all of them, each with the stamp of the run's files that it was read from; one that was damaged, or written
by another version of this program, counts as not there.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from collector.format.schema.modes import open_beside
from collector.format.stored_files import is_plain
from profiler_server.derive.folders import find_private
from profiler_server.derive.records import digest_code, unseal, write_file
from profiler_server.derive.stamps import Stamp

FILE_NAME = ".stepscope-summaries"
LIMIT_BYTES = 128 << 20
T = TypeVar("T")


@dataclass(frozen=True)
class Summary(Generic[T]):
    """`value` is what was read from the files of a run that have this stamp."""

    stamp: Stamp
    value: T


@dataclass(frozen=True)
class _File(Generic[T]):
    code: str
    base_dir: str
    summaries: dict[str, Summary[T]]


class Summaries(Generic[T]):
    """The summaries below one base directory, by run id. `kind` is the type of a value."""

    def __init__(self, base_dir: Path, kind: Any) -> None:
        self._base_dir = base_dir
        self._decoder: Any = msgspec.msgpack.Decoder(_File[kind])

    @cached_property
    def _places(self) -> list[tuple[Path, str]]:
        """Folder and name of the file, the best place first."""
        digest = blake2b(os.fsencode(self._base_dir), digest_size=8).hexdigest()
        beside = [(self._base_dir, FILE_NAME)] if is_plain(self._base_dir) else []
        return [*beside, *((private, f"{digest}{FILE_NAME}") for private in find_private())]

    def read(self) -> Mapping[str, Summary[T]]:
        """Return what is kept, nothing where that cannot be read."""
        for folder, name in self._places:
            try:
                found: _File[T] = self._decoder.decode(unseal(_read_file(folder / name)))
            except (OSError, ValueError, msgspec.MsgspecError, RecursionError):
                continue
            if found.code == digest_code() and found.base_dir == str(self._base_dir):
                return found.summaries
        return {}

    def write(self, summaries: Iterable[tuple[str, Summary[T]]]) -> None:
        """Keep these and no others, where that can be done."""
        file = _File(digest_code(), str(self._base_dir), dict(summaries))
        raw = msgspec.msgpack.encode(file, enc_hook=_encode_number)
        any(write_file(folder, name, raw, open_beside) for folder, name in self._places)


def _read_file(path: Path) -> bytes:
    # No link is followed: whoever may write beside the runs could have another file read.
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0))
    with os.fdopen(number, "rb") as file:
        raw = file.read(LIMIT_BYTES + 1)
    if len(raw) > LIMIT_BYTES:
        raise OSError(f"{path} is larger than {LIMIT_BYTES >> 20} MiB")
    return raw


def _encode_number(value: Any) -> Any:
    if hasattr(value, "item"):
        return value.item()  # of NumPy
    raise TypeError(f"{type(value).__name__} cannot be kept")
