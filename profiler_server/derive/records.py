"""Results on disk: for each rank files beside its tables, and for each base directory one file with a summary of every
run.

A file is ignored if it is damaged, was written by another version of this program, or was computed from other tables.
"""

from __future__ import annotations

import hashlib
import logging
import os
import stat
import tempfile
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, Generic, TypeVar, get_args

import msgspec
import numpy as np

from collector.format.lens import WHOLE
from collector.format.run import RankRun
from collector.format.schema.errors import RunError
from collector.format.schema.inside import RefusedError, is_plain_folder, open_inside
from collector.format.schema.modes import open_beside
from collector.format.schema.reading import LIMIT_BYTES, read_small_file
from collector.format.schema.removal import make_folder
from collector.format.schema.writing import Opener, replacing
from collector.format.stored_files import is_plain
from profiler_server.derive.stamps import Stamp, shorten_stamp
from profiler_server.derive.store import Entry


def list_roots(rank: RankRun, name: str) -> list[Path]:
    """Return the folders that may hold results of a rank, the preferred folder first. Their names end in `name`, which
    begins with a dot.

    The folder beside the tables is left out if its path is not UTF-8, because Arrow cannot write there.
    """
    digest = blake2b(os.fsencode(rank.folder), digest_size=8).hexdigest()
    beside = [rank.folder / name] if is_plain(rank.folder) else []
    return [*beside, *(private / f"{digest}{name}" for private in find_private())]


def find_private() -> list[Path]:
    """Return this user's private temporary folder, as a list of one; empty if other users can write to this folder."""
    private = _find_private()
    return [private] if _is_ours(private) else []


def make_root(root: Path) -> None:
    """Make a folder for results. Raises PermissionError if others can write to it, RefusedError for a link, or OSError."""
    private = _find_private()
    if private in (root, root.parent):
        private.mkdir(mode=0o700, exist_ok=True)
        if not _is_ours(private):
            raise PermissionError(f"{private} is not a private folder of this user")
    try:
        make_folder(root)
    except FileExistsError:
        if not is_plain_folder(root):
            raise RefusedError(f"{root} is a link or a file, not a folder of caches; remove it") from None


def _find_private() -> Path:
    owner = os.getuid() if hasattr(os, "getuid") else 0
    return Path(tempfile.gettempdir()) / f"stepscope-{owner}"


def _is_ours(private: Path) -> bool:
    """Return whether only this user can write to `private`, a folder in a directory that users share. True also if the
    folder does not exist yet.
    """
    try:
        found = os.lstat(private)
    except FileNotFoundError:
        return True
    mine = not hasattr(os, "getuid") or found.st_uid == os.getuid()
    return stat.S_ISDIR(found.st_mode) and mine and not found.st_mode & 0o022


FOLDER = ".results"
_DIGEST_BYTES = 16
_INTEGERS = {"|i1": 7, "<i2": 15, "<i4": 31, "<i8": 63}
"""Storage type of an integer array -> bits of the largest integer."""
_STORED = (*_INTEGERS, "<f4", "<f8")
T = TypeVar("T")
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Record(Generic[T]):
    code: str
    stamp: str
    result: T


class _Sealed(Generic[T]):
    """Files with one result each, all of one type, beside a digest of the program's code and the result's stamp."""

    def __init__(self, kind: Any, read: Callable[[Path], bytes], opener: Opener) -> None:
        self._decoder: Any = msgspec.msgpack.Decoder(_Record[kind], dec_hook=_decode_array)
        self._read = read
        self._opener = opener

    def find(self, places: Iterable[Path], stamp: str) -> Iterator[T]:
        for place in places:
            try:
                record = self._decoder.decode(unseal(self._read(place)))
            except (OSError, TypeError, ValueError, OverflowError, msgspec.MsgspecError, RecursionError):
                continue  # missing, damaged, or written by other code: it is computed again
            if record.code == digest_code() and record.stamp == stamp:
                yield record.result

    def write(self, places: Iterable[Path], stamp: str, result: T) -> None:
        """Write a result to the first writable place. Raises TypeError, ValueError or OverflowError for an unsupported
        result."""
        raw = msgspec.msgpack.encode(_Record(digest_code(), stamp, result), enc_hook=_encode_array)
        any(write_file(place.parent, place.name, raw, self._opener) for place in places)


class Records(Generic[T]):
    """Files with results of one type `kind`, made of dataclasses, numbers, texts and arrays of int64, float64 or
    float32.

    `name` is the unique name of the files. `is_sound` returns whether a result that is read is valid, because anyone
    who can write beside the tables can forge a file.
    """

    def __init__(self, name: str, kind: Any, is_sound: Callable[[T], bool] = lambda result: True) -> None:
        self._name = name
        self._is_sound = is_sound
        self._files = _Sealed[T](kind, read_small_file, open_inside)

    def find(self, rank: RankRun, stamp: Hashable) -> Entry[T] | None:
        """Return the result computed from files with this stamp; None if there is no readable result."""
        places = self._list_places(rank) if rank.lens == WHOLE else []
        found = self._files.find(places, shorten_stamp(stamp))
        return next((Entry(stamp, result) for result in found if self._is_sound(result)), None)

    def write(self, rank: RankRun, stamp: Hashable, result: T) -> None:
        """Write the result of a rank, if possible. Nothing is written for a rank that is limited to selected steps or
        redacted, or that still records.
        """
        try:
            if rank.lens == WHOLE and rank.state != "recording":
                self._files.write(self._list_places(rank), shorten_stamp(stamp), result)
        except (RunError, TypeError, ValueError, OverflowError) as error:
            log.warning("%s of %s is not cached: %s", self._name, rank.folder, error)

    def _list_places(self, rank: RankRun) -> list[Path]:
        return [root / self._name for root in list_roots(rank, FOLDER)]


@cache
def digest_code() -> str:
    """Return a digest of this program's code. Results of another version have another digest and are not used."""
    server = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for path in sorted([*server.rglob("*.py"), *(server.parent / "collector" / "format").rglob("*.py")]):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _digest(raw: bytes) -> bytes:
    return hashlib.blake2b(raw, digest_size=_DIGEST_BYTES).digest()


def unseal(sealed: bytes) -> bytes:
    """Return the bytes that were given to `write_file`. Raises ValueError if the file was cut or changed since then."""
    raw = sealed[_DIGEST_BYTES:]
    if sealed[:_DIGEST_BYTES] != _digest(raw):
        raise ValueError("the file is not as it was written")
    return raw


def write_file(root: Path, name: str, raw: bytes, opener: Opener = open_inside) -> bool:
    """Write `raw` after its digest to a file, so that a reader gets either all of it or an error. Return whether the
    file was written.
    """
    if len(raw) + _DIGEST_BYTES > LIMIT_BYTES:
        return False
    try:
        make_root(root)
        with replacing(root / name, opener=opener) as file:
            file.write(_digest(raw) + raw)
    except OSError:
        return False
    return True


def _encode_array(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        stored = value if value.dtype.str in _STORED and value.dtype.kind == "f" else _narrow(value)
        return stored.dtype.str, stored.shape, stored.tobytes()
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} cannot be cached")


def _narrow(values: Any) -> Any:
    whole = values.astype("<i8", casting="safe")
    if not whole.size:
        return whole
    least, most = int(whole.min()), int(whole.max())
    fits = (kind for kind, bits in _INTEGERS.items() if -(1 << bits) <= least and most < 1 << bits)
    return whole.astype(next(fits))


def _decode_array(kind: Any, raw: Any) -> Any:
    stored, shape, content = raw
    if stored not in _STORED:
        raise ValueError(f"{str(stored)[:20]!r} is no type of an array")
    declared = _find_dtype(kind)
    if np.dtype(stored).kind != np.dtype(declared).kind:
        raise ValueError("the array holds other numbers than it should")
    return np.frombuffer(content, stored).reshape(shape).astype(declared, copy=False)


def _find_dtype(kind: Any) -> Any:
    parts = get_args(kind)
    return get_args(parts[1])[0] if len(parts) == 2 else np.int64


FILE_NAME = ".stepscope-summaries"


@dataclass(frozen=True)
class Summary(Generic[T]):
    """A `value` that was read from a run's files, and the `stamp` of these files at that time."""

    stamp: Stamp
    value: T


class Summaries(Generic[T]):
    """The summaries of all runs below a base directory, by run id, in one file. `kind` is the type of a value."""

    def __init__(self, base_dir: Path, kind: Any) -> None:
        self._base_dir = base_dir
        self._files = _Sealed[dict[str, Summary[T]]](dict[str, Summary[kind]], _read_plain, open_beside)

    def read(self) -> Mapping[str, Summary[T]]:
        """Return the summaries in the file by run id; empty if the file cannot be read."""
        return next(self._files.find(self._list_places(), str(self._base_dir)), {})

    def write(self, summaries: Iterable[tuple[str, Summary[T]]]) -> None:
        """Replace the file by one with these pairs of run id and summary, if the file can be written."""
        self._files.write(self._list_places(), str(self._base_dir), dict(summaries))

    def _list_places(self) -> list[Path]:
        digest = blake2b(os.fsencode(self._base_dir), digest_size=8).hexdigest()
        beside = [self._base_dir / FILE_NAME] if is_plain(self._base_dir) else []
        return [*beside, *(private / f"{digest}{FILE_NAME}" for private in find_private())]


def _read_plain(path: Path) -> bytes:
    # Links are not followed: otherwise anybody who may write beside the runs could make the server read other files.
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0))
    with os.fdopen(number, "rb") as file:
        return file.read(LIMIT_BYTES + 1)
