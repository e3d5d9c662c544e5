"""Find the plug-ins of a room: every module in a package that declares a given name. Nothing lists them."""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType
from typing import Any

from collector.edge import log_failure


def find_plugins(package: ModuleType, name: str) -> tuple[Any, ...]:
    """Import every module of the package and return what those that declare `name` declare, by module name.

    A module that cannot be imported is logged and left out: a missing dependency of one part takes no other away.
    """
    found = []
    for info in sorted(pkgutil.iter_modules(package.__path__), key=lambda module: module.name):
        with log_failure("%s.%s is left out", package.__name__, info.name):
            module = importlib.import_module(f"{package.__name__}.{info.name}")
            if hasattr(module, name):
                found.append(getattr(module, name))
    return tuple(found)
