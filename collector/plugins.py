"""Find the plug-ins of a room: every module in a package that declares a given name. Nothing lists them.

May import the standard library only.
"""

from __future__ import annotations

import importlib
import logging
import pkgutil
from types import ModuleType
from typing import Any

_log = logging.getLogger("stepscope")


def find_plugins(package: ModuleType, name: str) -> tuple[Any, ...]:
    """Import every module of the package and return what those that declare `name` declare, by module name.

    A module that cannot be imported is logged and left out: a missing dependency of one part takes no other away.
    """
    found = []
    for info in sorted(pkgutil.iter_modules(package.__path__), key=lambda module: module.name):
        try:
            module = importlib.import_module(f"{package.__name__}.{info.name}")
        except Exception as error:  # noqa: BLE001  an edge: a plug-in may fail in any way and must harm nothing else
            _log.warning("stepscope: %s.%s is left out: %r", package.__name__, info.name, error)
            continue
        if hasattr(module, name):
            found.append(getattr(module, name))
    return tuple(found)
