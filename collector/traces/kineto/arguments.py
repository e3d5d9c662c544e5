"""What the arguments of events say, read per different text."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from collector.traces.kineto.clock import Ints
from collector.traces.kineto.events import NO_ARGS
from collector.traces.kineto.ids import NO_ID, read_id
from collector.traces.kineto.intern import ArgTexts

_SHOWN_ELSEWHERE = frozenset({"Call stack", "Module Hierarchy", "Trace name"})


@dataclass(frozen=True)
class Arguments:
    """The different arguments of a trace; the number of an event's arguments is the row here.

    They stay text and are decoded whenever something is asked of them: decoded they take ten times the memory.
    """

    details: ArgTexts

    def integers(self, *keys: str) -> Ints:
        """Return the first of the keys that each has, as an integer; -1 for none."""
        return np.fromiter(self._pick(keys, _to_int, NO_ID), np.int64)

    def floats(self, *keys: str) -> npt.NDArray[np.float64]:
        """Return the first of the keys that each has, as a number; NaN for none."""
        return np.fromiter(self._pick(keys, _to_float, float("nan")), np.float64)

    def texts(self, *keys: str) -> list[str | None]:
        """Return the first of the keys that each has: a string as it is, anything else as compact JSON."""
        same: dict[str | None, str | None] = {}
        return [same.setdefault(text, text) for text in self._pick(keys, _to_text, None)]

    def show(self, number: int) -> str | None:
        """Return what a reader of the timeline is shown as JSON, None for nothing."""
        kept = {key: _to_value(raw) for key, raw in self.details[number].items() if key not in _SHOWN_ELSEWHERE}
        return json.dumps(kept, separators=(",", ":"), ensure_ascii=False) if kept else None

    def _pick(self, keys: tuple[str, ...], read: Callable[[Any], Any], absent: Any) -> Iterator[Any]:
        for entry in self.details.pick(keys):
            raw = next((raw for raw in entry if raw is not NO_ARGS), None)
            value = None if raw is None else read(_to_value(raw))
            yield absent if value is None else value


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
