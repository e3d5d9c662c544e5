"""Find the plug-ins of a room: every module in a package that declares a given name. Nothing lists them."""

from __future__ import annotations

import importlib
import logging
import pkgutil
from types import ModuleType
from typing import Any

from collector.edge import log_failure

_log = logging.getLogger("stepscope")


def find_plugins(package: ModuleType, name: str) -> tuple[Any, ...]:
    """Import every module of the package and return what those that declare `name` declare, by module name.

    A module that cannot be imported is logged and left out: a missing dependency of one part takes no other away.
    """
    found = []
    without: dict[str, list[str]] = {}
    for info in sorted(pkgutil.iter_modules(package.__path__), key=lambda module: module.name):
        with log_failure("%s.%s is left out", package.__name__, info.name):
            try:
                module = importlib.import_module(f"{package.__name__}.{info.name}")
            except ModuleNotFoundError as error:
                if error.name is None or error.name.partition(".")[0] == package.__name__.partition(".")[0]:
                    raise
                without.setdefault(error.name.partition(".")[0], []).append(info.name)
                continue
            if hasattr(module, name):
                found.append(getattr(module, name))
    for missing, names in without.items():
        _log.warning("stepscope: %s is not installed; left out of %s: %s", missing, package.__name__, ", ".join(names))
    return tuple(found)
