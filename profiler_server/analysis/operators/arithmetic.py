"""What the probe found out about the processor's arithmetic, from rank.json (`collector/signals/arithmetic.py`)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from profiler_server.facts.machine import Products, Subnormals

_GROUPS = ("parameters", "gradients", "states")
_MOST = 10**15
_MOST_SHAPES = 8


def read_subnormals(facts: Mapping[str, Any]) -> tuple[Subnormals, ...]:
    """Read the groups that were looked at; what is damaged counts as not looked at."""
    found = facts.get("subnormals")
    groups = [_read_group(name, found.get(name)) for name in _GROUPS] if isinstance(found, Mapping) else []
    return tuple(group for group in groups if group is not None)


def _read_group(name: str, entry: Any) -> Subnormals | None:
    names = ("count", "subnormal", "plain_ns", "flushed_ns")
    numbers = _list_numbers(entry, names)
    if len(numbers) < len(names) or not numbers[0] or numbers[1] > numbers[0]:
        return None
    return Subnormals(name, *numbers)


def read_products(facts: Mapping[str, Any]) -> Products | None:
    """Read the timed products; None where there are none, or what is written is damaged."""
    found = facts.get("bfloat16")
    if not isinstance(found, Mapping):
        return None
    names, linear = ("rows", "float32_ns", "bfloat16_ns"), found.get("linear_frac")
    numbers = _list_numbers(found, names)
    is_share = isinstance(linear, (int, float)) and not isinstance(linear, bool) and math.isfinite(linear)
    if len(numbers) < len(names) or not all(numbers) or not is_share:
        return None
    rows, float32_ns, bfloat16_ns = numbers
    shapes = tuple(_list_shapes(found.get("shapes")))
    words = str(found.get("instructions", ""))[:40]
    return Products(words, rows, shapes, float32_ns, bfloat16_ns, float(linear or 0.0), found.get("autocast") is True)


def _list_numbers(entry: Any, names: tuple[str, ...]) -> list[int]:
    """Return the fields that are whole numbers; fewer than there are names where one is missing or damaged."""
    values = [entry.get(name) for name in names] if isinstance(entry, Mapping) else []
    return [value for value in values if value is not None and _is_number(value)]


def _list_shapes(value: Any) -> list[tuple[int, int]]:
    pairs = value[:_MOST_SHAPES] if isinstance(value, list) else []
    return [
        (pair[0], pair[1]) for pair in pairs if isinstance(pair, list) and len(pair) == 2 and all(map(_is_number, pair))
    ]


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST
