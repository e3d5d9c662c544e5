"""Answers as short JSON: a list says how much of it is shown, and what does not fit is cut where it is longest."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

LIMIT_BYTES = 2_048
_MOST_ENTRIES = 50
_LEAST_TEXT = 40
_DIGITS = 4
_ABSENT: tuple[object, ...] = (None, "", [], {})


def list_some(entries: Sequence[Any], skip: int = 0, total: int | str | None = None) -> dict[str, Any]:
    """Return a part of a list, from number `skip` on, with the number of its entries and of those that are shown.

    `total` is the length of the whole list if `entries` are not all of it.
    """
    shown = list(entries[skip : skip + _MOST_ENTRIES])
    start = {"skipped": skip} if skip else {}
    return {"shown": len(shown), "total": len(entries) if total is None else total, **start, "entries": shown}


def fit(answer: Mapping[str, Any], change: Callable[[str], str] = str, limit_bytes: int = LIMIT_BYTES) -> str:
    """Return an answer as JSON of at most `limit_bytes` bytes. `change` is applied to each text.

    Values that are absent are left out. The longest list loses entries from its end, down to one; then the longest text
    is cut.
    """
    found = _tidy(answer, change)
    while len(text := _spell(found)) > limit_bytes:
        lists = [each for each in _walk(found) if isinstance(each, dict) and len(each.get("entries", ())) > 1]
        if lists:
            longest = max(lists, key=lambda each: len(_spell(each)))
            longest["entries"].pop()
            longest["shown"] -= 1
        else:
            _cut_longest(found)
    return text.decode()


def _tidy(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, Mapping):
        tidied = {change(str(key)): _tidy(inner, change) for key, inner in value.items()}
        return {key: inner for key, inner in tidied.items() if inner not in _ABSENT}
    if isinstance(value, (list, tuple)):
        return [_tidy(inner, change) for inner in value]
    if isinstance(value, float) and math.isfinite(value):
        return round(value, _DIGITS) if abs(value) >= 0.01 else float(f"{value:.{_DIGITS}g}")
    return value if value is None or isinstance(value, (bool, int)) else change(str(value))


def _spell(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode("utf-8", "replace")


def _walk(value: Any) -> Iterator[Any]:
    yield value
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for each in inner:
        yield from _walk(each)


def _cut_longest(found: dict[str, Any]) -> None:
    """Halve the longest text. Without a text that can be cut, drop the longest part of the answer."""
    places = [
        (each, key, inner)
        for each in _walk(found)
        if isinstance(each, (dict, list))
        for key, inner in (each.items() if isinstance(each, dict) else enumerate(each))
        if isinstance(inner, str) and len(inner) > _LEAST_TEXT
    ]
    if places:
        holder, key, text = max(places, key=lambda place: len(place[2]))
        holder[key] = text[: len(text) // 2].rstrip("…") + "…"
    else:
        del found[max(found, key=lambda key: len(_spell(found[key])))]
