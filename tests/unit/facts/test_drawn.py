"""Facts drawn by their types, with the limits themselves among the numbers: what follows from them.

Every class of facts with a property is drawn, so that a new one is covered as it is written.
"""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
import random
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
import pytest

from collector.format.phases import PHASE_NAMES
from profiler_server import facts
from profiler_server.diagnosis.limits import facts as limits
from profiler_server.facts.case import Case, Claim
from profiler_server.facts.steps import Steps
from tests.support.showing import show
from tests.unit.diagnosis.edges.base import base

LIMITS = sorted({float(value) for value in vars(limits).values() if isinstance(value, int | float) and 0 < value < 1.5})
NOT_DRAWN = (Case, Claim, Steps)
"""They hold tables or functions."""


def list_properties(kind: type) -> list[str]:
    return sorted(name for name in dir(kind) if isinstance(getattr(kind, name), property))


def is_drawable(kind: Any) -> bool:
    return isinstance(kind, type) and dataclasses.is_dataclass(kind) and bool(list_properties(kind))


KINDS = {
    kind.__name__: kind
    for found in pkgutil.iter_modules(facts.__path__)
    for module in [importlib.import_module(f"{facts.__name__}.{found.name}")]
    for kind in vars(module).values()
    if is_drawable(kind) and kind.__module__ == module.__name__ and kind not in NOT_DRAWN
}


class Draw:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def make(self, kind: Any, depth: int = 0) -> Any:
        """Return a value of a class, each field by its type and name."""
        hints = get_type_hints(kind)
        fields = [field for field in dataclasses.fields(kind) if field.init]
        return kind(**{field.name: self.pick(hints[field.name], field.name, depth) for field in fields})

    def pick(self, hint: Any, name: str, depth: int) -> Any:
        origin, inner = get_origin(hint), get_args(hint)
        if origin in (Union, types.UnionType):
            return None if type(None) in inner and self.random.random() < 0.25 else self.pick(inner[0], name, depth)
        if origin is Literal:
            return self.random.choice(inner)
        if (origin is tuple and inner[-1:] == (Ellipsis,)) or origin in (Sequence, list):
            return tuple(self.pick(inner[0], name, depth) for _ in range(self.random.randint(0, 3)))
        if origin is tuple:
            return tuple(self.pick(part, name, depth) for part in inner)
        if origin is not None and issubclass(origin, Mapping):
            keys = PHASE_NAMES if "phases" in name else ("read", "collate", "launches") if inner[0] is str else range(3)
            return {key: self.pick(inner[1], name, depth) for key in keys}
        if origin is np.ndarray:
            return np.array([self.number("_ns") for _ in range(4)])
        if dataclasses.is_dataclass(hint):
            return self.make(hint, depth + 1)
        plain: dict[Any, Callable[[], Any]] = {
            bool: lambda: self.random.random() < 0.5,
            int: lambda: round(self.number(name)) if "_ns" in name else self.random.choice((0, 1, 2, 4, 8, 16)),
            float: lambda: self.number(name),
            str: lambda: self.random.choice(("", "cuda", "7.5", "9.0", "read")),
            Any: lambda: None,
        }
        return plain[hint]()

    def number(self, name: str) -> float:
        """Return a share: a limit, or what lies between two of them; of a time, such a share of 100 ms."""
        share = self.random.choice((0.0, 0.0, 1.0, *LIMITS, *(round(limit + 0.03, 4) for limit in LIMITS)))
        return share * 1e8 if "_ns" in name else share


def tell(value: Any) -> str:
    return ", ".join(f"{name}={ask(value, name)}" for name in list_properties(type(value)))


def ask(value: Any, name: str) -> str:
    try:
        return show(getattr(value, name))
    except (ArithmeticError, LookupError) as error:  # nothing is in a part that is never empty
        return type(error).__name__


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_what_follows_from_drawn_facts(name: str, golden: Callable[[str, str], None]) -> None:
    golden(f"drawn/facts/{name}", "\n".join(tell(Draw(seed).make(KINDS[name])) for seed in range(60)) + "\n")


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_what_follows_from_a_case_with_drawn_parts(golden: Callable[[str, str], None]) -> None:
    lines = []
    for seed in range(60):
        drawn = {part.lower(): Draw(seed).make(KINDS[part]) for part in ("Loading", "Device", "Host", "Ranks")}
        lines.append(tell(dataclasses.replace(base(), **drawn)))
    golden("drawn/facts/Case", "\n".join(lines) + "\n")
