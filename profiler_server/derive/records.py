"""Results of ranks as files beside their tables, one of each rank and kind: what they were computed from, and by which code.

A file that was damaged, that another version of this program wrote, or that belongs to other tables counts as not there.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Generic, TypeVar, get_args

import msgspec
import numpy as np

from collector.format.lens import WHOLE
from collector.format.run import RankRun
from collector.format.schema.errors import RunError
from collector.format.schema.inside import open_inside
from collector.format.schema.reading import LIMIT_BYTES, read_small_file
from collector.format.schema.writing import Opener, replacing
from profiler_server.derive.folders import list_roots, make_root
from profiler_server.derive.stamps import shorten_stamp
from profiler_server.derive.store import Entry

FOLDER = ".results"
_DIGEST_BYTES = 16
_INTEGERS = {"|i1": 7, "<i2": 15, "<i4": 31, "<i8": 63}
"""How an array of whole numbers is stored -> the bits of the largest of them."""
_STORED = (*_INTEGERS, "<f4", "<f8")
T = TypeVar("T")
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Record(Generic[T]):
    code: str
    stamp: str
    result: T


class Records(Generic[T]):
    """`kind` is the type of a result, made of dataclasses, numbers, texts and arrays of int64, float64 or float32.

    `name` is that of its file, unlike any other's. `is_sound` says whether a result that was read can be one: whoever
    may write beside the tables may have written it.
    """

    def __init__(self, name: str, kind: Any, is_sound: Callable[[T], bool] = lambda result: True) -> None:
        self._name = name
        self._is_sound = is_sound
        self._decoder: Any = msgspec.msgpack.Decoder(_Record[kind], dec_hook=_decode_array)

    def find(self, rank: RankRun, stamp: Hashable) -> Entry[T] | None:
        """Return the result that was computed from files of this stamp, None where there is none that can be read."""
        if rank.lens != WHOLE:
            return None
        for root in list_roots(rank, FOLDER):
            try:
                record = self._decoder.decode(unseal(read_small_file(root / self._name)))
            except (OSError, TypeError, ValueError, OverflowError, msgspec.MsgspecError, RecursionError):
                continue  # not there, damaged, or not ours: it is computed anew
            if record.code == digest_code() and record.stamp == shorten_stamp(stamp) and self._is_sound(record.result):
                return Entry(stamp, record.result)
        return None

    def write(self, rank: RankRun, stamp: Hashable, result: T) -> None:
        """Write the result of a whole rank where that can be done; of one that records it would be old in a second."""
        try:
            if rank.lens != WHOLE or rank.state == "recording":
                return
            record = _Record(digest_code(), shorten_stamp(stamp), result)
            raw = msgspec.msgpack.encode(record, enc_hook=_encode_array)
        except (RunError, TypeError, ValueError, OverflowError) as error:
            log.warning("%s of %s is not cached: %s", self._name, rank.folder, error)
            return
        any(write_file(root, self._name, raw) for root in list_roots(rank, FOLDER))


@cache
def digest_code() -> str:
    """Return what changes when this program does: a result is computed anew by another version."""
    server = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for path in sorted([*server.rglob("*.py"), *(server.parent / "collector" / "format").rglob("*.py")]):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _digest(raw: bytes) -> bytes:
    return hashlib.blake2b(raw, digest_size=_DIGEST_BYTES).digest()


def unseal(sealed: bytes) -> bytes:
    """Return what `write_file` was given. Raises ValueError for a file that was cut or changed since."""
    raw = sealed[_DIGEST_BYTES:]
    if sealed[:_DIGEST_BYTES] != _digest(raw):
        raise ValueError("the file is not as it was written")
    return raw


def write_file(root: Path, name: str, raw: bytes, opener: Opener = open_inside) -> bool:
    """Write a file, after its digest, so that a reader sees all of it or nothing; say whether that could be done."""
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
    """Return whole numbers in as few bytes as hold them all."""
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
    """Return the type of the numbers that an array is declared to hold."""
    parts = get_args(kind)
    return get_args(parts[1])[0] if len(parts) == 2 else np.int64
