"""What the arguments of events say, read once per different text.

May import numpy, msgspec and its neighbours in this room.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from collector.traces.kineto.clock import Ints
from collector.traces.kineto.collect import NO_ID, read_id
from collector.traces.kineto.intern import ArgTexts

Details = list[dict[str, msgspec.Raw]]
_SHOWN_ELSEWHERE = frozenset({"Call stack", "Module Hierarchy", "Trace name"})


@dataclass(frozen=True)
class Arguments:
    """The different arguments of a trace; `code` of an event is its row here."""

    details: Details

    @classmethod
    def read(cls, texts: ArgTexts) -> Arguments:
        return cls(texts.decode())

    def integers(self, *keys: str) -> Ints:
        """Return the first of the keys that each has, as an integer; -1 for none."""
        return np.array([self._pick(entry, keys, _to_int, NO_ID) for entry in self.details], np.int64)

    def floats(self, *keys: str) -> npt.NDArray[np.float64]:
        """Return the first of the keys that each has, as a number; NaN for none."""
        return np.array([self._pick(entry, keys, _to_float, float("nan")) for entry in self.details], np.float64)

    def texts(self, *keys: str) -> list[str | None]:
        """Return the first of the keys that each has: a string as it is, anything else as compact JSON."""
        return [self._pick(entry, keys, _to_text, None) for entry in self.details]

    def as_json(self) -> list[str | None]:
        """Return what a reader of the timeline is shown, None for nothing."""
        shown = []
        for entry in self.details:
            kept = {key: _to_value(raw) for key, raw in entry.items() if key not in _SHOWN_ELSEWHERE}
            shown.append(json.dumps(kept, separators=(",", ":"), ensure_ascii=False) if kept else None)
        return shown

    @staticmethod
    def _pick(entry: dict[str, msgspec.Raw], keys: tuple[str, ...], read: Callable[[Any], Any], absent: Any) -> Any:
        for key in keys:
            if key in entry:
                value = read(_to_value(entry[key]))
                return absent if value is None else value
        return absent


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
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), ensure_ascii=False)
