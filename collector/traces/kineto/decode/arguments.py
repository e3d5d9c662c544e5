"""The distinct arguments of a trace's events and their content. Values that differ per call are left out."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import msgspec
import numpy as np

from collector.format.intervals import Floats, Ints
from collector.traces.kineto.decode.events import DETAILS, NO_ARGS, NO_ID, UNREADABLE, decode_each, read_id
from collector.traces.kineto.decode.numbering import BoundedNumbers

LIMIT_BYTES = 96 << 20
"""The total size of distinct arguments; later ones are dropped and counted."""
_PICKED_AT_ONCE = 1 << 12
_LAST_COMMA = re.compile(rb",\s*\}\s*$")
_SHOWN_ELSEWHERE = frozenset({"Call stack", "Module Hierarchy", "Trace name"})


class Arguments(BoundedNumbers):
    """The distinct arguments, numbered from 1, as texts: decoded ones take ten times the memory. 0 means none."""

    def __init__(self) -> None:
        super().__init__(b"", LIMIT_BYTES)
        self[b""]

    @cached_property
    def _texts(self) -> list[bytes]:
        """The texts of all arguments in order of number; no text may be added afterwards."""
        return [_LAST_COMMA.sub(b"}", text) for text in self]

    def pick(self, keys: tuple[str, ...]) -> Iterator[tuple[msgspec.Raw, ...]]:
        """Yield for each entry the values of `keys`, as text; NO_ARGS for a key that the entry lacks."""
        decoder = _make_decoder(keys)
        for first in range(0, len(self._texts), _PICKED_AT_ONCE):
            texts = self._texts[first : first + _PICKED_AT_ONCE]
            for entry in decode_each([text or b"{}" for text in texts], decoder):
                yield (NO_ARGS,) * len(keys) if entry is None else msgspec.structs.astuple(entry)

    def integers(self, *keys: str) -> Ints:
        """Return for each entry the value of its first existing key as an integer; -1 if it has none of the keys."""
        return np.fromiter(self._read(keys, _to_int, NO_ID), np.int64)

    def floats(self, *keys: str) -> Floats:
        """Return for each entry the value of its first existing key as a float; NaN if it has none of the keys."""
        return np.fromiter(self._read(keys, _to_float, float("nan")), np.float64)

    def texts(self, *keys: str) -> list[str | None]:
        """Return for each entry the value of its first existing key, as a string or JSON; None without any."""
        same: dict[str | None, str | None] = {}
        return [same.setdefault(text, text) for text in self._read(keys, _to_text, None)]

    def show(self, number: int) -> str | None:
        """Return as JSON those arguments that the timeline shows; None if there are none of these."""
        try:
            entry = DETAILS.decode(self._texts[number] or b"{}")
        except UNREADABLE:
            return None
        kept = {key: _to_value(raw) for key, raw in entry.items() if key not in _SHOWN_ELSEWHERE}
        return _to_json(kept) if kept else None

    def _read(self, keys: tuple[str, ...], read: Callable[[Any], Any], absent: Any) -> Iterator[Any]:
        for entry in self.pick(keys):
            raw = next((raw for raw in entry if raw is not NO_ARGS), None)
            value = None if raw is None else read(_to_value(raw))
            yield absent if value is None else value


def _make_decoder(keys: tuple[str, ...]) -> msgspec.json.Decoder[Any]:
    fields = {f"value{number}": key for number, key in enumerate(keys)}
    entry = msgspec.defstruct("Entry", [(name, msgspec.Raw, NO_ARGS) for name in fields], rename=fields, gc=False)
    return msgspec.json.Decoder(list[entry])  # type: ignore[valid-type]


def _to_value(raw: msgspec.Raw) -> Any:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return bytes(raw).decode("utf-8", "replace")


def _to_int(value: Any) -> int | None:
    return read_id(value) if isinstance(value, (int, float, str)) else None


def _to_float(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def _to_text(value: Any) -> str | None:
    if value is None or value == "":
        return None
    return value if isinstance(value, str) else _to_json(value)


def _to_json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
