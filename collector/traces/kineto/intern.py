"""Number what repeats: names, threads, arguments."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from collector.traces.kineto.events import DETAILS

# What differs from call to call and is kept in columns of its own, or only numbers events within the file. Without it
# the arguments of a million events are a few thousand different texts, and each is parsed once.
_PER_CALL = re.compile(
    rb'"(?:E(?:xternal id|v Idx)|correlation|external (?:id|ts)|Record function id|Sequence number'
    rb'|P(?:ython (?:parent )?id|rofiler Event Index)|Trace iteration)"\s*+:\s*+(?:[^",}\]\0]++|"[^"\0]*+")?+(?:,\s*+)?+'
)
_LAST_COMMA = re.compile(rb",\s*\}\s*$")
ARGS_LIMIT_BYTES = 96 << 20
"""Different arguments are kept up to this size in all; those that come later are dropped and counted."""

KEYS_LIMIT_BYTES = 64 << 20
"""Different names and threads get a number of their own up to this size in all."""
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
        if self._left_bytes > 0 or key == self._rest:
            return super().__missing__(key)
        self.dropped += 1
        return self[self._rest]


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

    def number_all(self, raws: Iterable[msgspec.Raw]) -> list[int]:
        """Return the numbers of the arguments of events."""
        # One pass over all of them, set apart by a byte that no JSON holds, costs half of one pass for each.
        texts = _PER_CALL.sub(b"", b"\0".join(raws)).split(b"\0")
        find = self._numbers.get
        found = [find(text) for text in texts]
        return [self._add(texts[at]) if number is None else number for at, number in enumerate(found)]

    def _add(self, text: bytes) -> int:
        known = self._numbers.get(text)
        if known is not None:
            return known
        if self._bytes > ARGS_LIMIT_BYTES:
            self.dropped += 1
            return 0
        self._bytes += len(text)
        number = self._numbers[text] = len(self._texts)
        self._texts.append(text)
        return number

    def __getitem__(self, number: Any) -> Any:
        return _decode(self._texts[number])


def _decode(text: bytes) -> dict[str, msgspec.Raw]:
    if not text:
        return {}
    try:
        return DETAILS.decode(_LAST_COMMA.sub(b"}", text))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}
