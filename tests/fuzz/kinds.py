"""The kinds of input by name. Each is a module here with `KIND`, a class that is given a folder."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import cast

from tests.fuzz.frame import Kind

NAMES = ("traces", "manifests", "tables", "caches", "control", "uploads", "packs")


def load_kind(name: str) -> Callable[[Path], Kind]:
    return cast("Callable[[Path], Kind]", importlib.import_module(f"tests.fuzz.{name}").KIND)
