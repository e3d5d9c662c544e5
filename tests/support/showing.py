"""Values in one line of text, whatever they are made of, so that what is found of a drawn case stands in a file."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

_LEAST = 1e-9


def show(value: Any) -> str:
    """Return a value with its fields, numbers to four digits, without fields that are empty."""
    if isinstance(value, float | np.floating):
        number = float(value)
        return f"{number:.4g}" if number != number or abs(number) > _LEAST else "0"
    if isinstance(value, np.ndarray):
        return show(value.tolist())
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{show(key)}: {show(part)}" for key, part in value.items()) + "}"
    if isinstance(value, list | tuple | set | frozenset):
        return "[" + ", ".join(map(show, sorted(value) if isinstance(value, set | frozenset) else value)) + "]"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value) if field.repr)
        told = ", ".join(f"{name}={show(part)}" for name, part in fields if not _is_empty(part))
        return f"{type(value).__name__}({told})"
    return str(value)


def sum_up(values: np.ndarray) -> str:
    """Return the sum of figures, and that of each times its place, by which a value that moves is seen."""
    known = np.where(np.isfinite(values), values, -1.0).astype(np.float64).ravel()
    return f"{known.sum():.9g} {(known * np.arange(1, len(known) + 1)).sum():.9g}"


def sum_fields(value: Any) -> str:
    """Return the sums of each field of a value that is an array."""
    fields = ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))
    return "; ".join(f"{name} {sum_up(part)}" for name, part in fields if isinstance(part, np.ndarray))


def _is_empty(value: Any) -> bool:
    return value is None or (isinstance(value, str | tuple | Mapping) and not value)
