"""Number what repeats: names, threads, arguments."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np

from collector.traces.kineto.clock import Ints
from collector.traces.kineto.events import DETAILS, NO_ARGS, UNREADABLE

_LAST_COMMA = re.compile(rb",\s*\}\s*$")
ARGS_LIMIT_BYTES = 96 << 20
"""Different arguments are kept up to this size in all; those that come later are dropped and counted."""

KEYS_LIMIT_BYTES = 64 << 20
"""Different names and threads get a number of their own up to this size in all."""
_PICKED_AT_ONCE = 1 << 12
_KEY_BYTES = 160
"""What a key takes beside its text."""


class Numbers(dict[Any, int]):
    """A mapping that gives each new key the next number, from 0."""

    def __missing__(self, key: Any) -> int:
        number = self[key] = len(self)
        return number


class BoundedNumbers(Numbers):
    """Numbers for keys up to a size in all; those that come later share the number of `rest`, and are counted."""

    def __init__(self, rest: Any, most_bytes: int | None = None) -> None:
        super().__init__()
        self._rest = rest
        self._left_bytes = KEYS_LIMIT_BYTES if most_bytes is None else most_bytes
        self.dropped = 0

    def __missing__(self, key: Any) -> int:
        self._left_bytes -= len(str(key)) + _KEY_BYTES
        return super().__missing__(key) if self._left_bytes > 0 or key == self._rest else self[self._rest]

    def take(self, keys: Sequence[Any], places: Ints) -> Ints:
        """Return the number of each key. `places` tells which of the keys each event has."""
        numbers = np.array([self[key] for key in keys], np.int64)
        if self._left_bytes <= 0:
            self.dropped += _count(places, [at for at, key in enumerate(keys) if key not in self])
        return numbers


class ArgTexts(Sequence[dict[str, msgspec.Raw]]):
    """The different arguments of a trace, without what differs per call. Number 0 is "no arguments".

    They are kept as text; taking one decodes it, values still as text. What is no object is empty.
    """

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {b"": 0, b"{}": 0}
        self._texts: list[bytes] = [b""]
        self._bytes = 0
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._texts)

    def take(self, texts: Sequence[bytes], places: Ints) -> Ints:
        """Return the number of each text, less what differs per call. `places` tells which of the texts each event has."""
        numbers = [self._find(text) for text in texts]
        if self._bytes > ARGS_LIMIT_BYTES:
            self.dropped += _count(places, [at for at, text in enumerate(texts) if text not in self._numbers])
        return np.array(numbers, np.int64)

    def _find(self, text: bytes) -> int:
        known = self._numbers.get(text)
        if known is not None:
            return known
        if self._bytes > ARGS_LIMIT_BYTES:
            return 0
        self._bytes += len(text)
        number = self._numbers[text] = len(self._texts)
        self._texts.append(_LAST_COMMA.sub(b"}", text))
        return number

    def pick(self, keys: tuple[str, ...]) -> Iterator[tuple[msgspec.Raw, ...]]:
        """Yield the values of some keys for each, as text; NO_ARGS stands for one that is not there."""
        decoder = _make_decoder(keys)
        for first in range(0, len(self._texts), _PICKED_AT_ONCE):
            texts = self._texts[first : first + _PICKED_AT_ONCE]
            try:
                entries = decoder.decode(b"[" + b",".join(text or b"{}" for text in texts) + b"]")
            except UNREADABLE:
                entries = []
            if len(entries) == len(texts):
                yield from map(msgspec.structs.astuple, entries)
            else:
                for text in texts:
                    entry = _decode(text)
                    yield tuple(entry.get(key, NO_ARGS) for key in keys)

    def __getitem__(self, number: Any) -> Any:
        return _decode(self._texts[number])


def _count(places: Ints, wanted: list[int]) -> int:
    return int(np.isin(places, wanted).sum()) if wanted else 0


def _decode(text: bytes) -> dict[str, msgspec.Raw]:
    if not text:
        return {}
    try:
        return DETAILS.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}


@lru_cache(64)
def _make_decoder(keys: tuple[str, ...]) -> msgspec.json.Decoder[Any]:
    fields = {f"value{number}": key for number, key in enumerate(keys)}
    entry = msgspec.defstruct("Entry", [(name, msgspec.Raw, NO_ARGS) for name in fields], rename=fields, gc=False)
    return msgspec.json.Decoder(list[entry])  # type: ignore[valid-type]
