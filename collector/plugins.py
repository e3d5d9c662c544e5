"""Find plug-ins, such as signals: all modules of a package that declare a given name. There is no list of plug-ins.

A module that cannot be imported is logged and returned as broken, so that a page can show it. The others still work.
"""

from __future__ import annotations

import importlib
import logging
import pkgutil
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from collector.edge import Edge

_LONGEST_LINE = 300
_log = logging.getLogger("stepscope")


@dataclass(frozen=True)
class BrokenPlugin:
    """A module that cannot be imported; `name` is the last component of its module path."""

    name: str
    error: Exception

    @property
    def reason(self) -> str:
        """The reason for the failed import, in one line."""
        return explain_failure(self.error)


@dataclass(frozen=True)
class Room:
    """A searched package: its modules that declare the name, sorted by module name, and those that fail to import."""

    modules: tuple[ModuleType, ...]
    broken: tuple[BrokenPlugin, ...]


def search_room(package: ModuleType, name: str) -> Room:
    """Import a package's modules without a leading underscore. Return those that declare `name`, and those that fail to
    import.
    """
    modules: list[ModuleType] = []
    broken: list[BrokenPlugin] = []
    for info in sorted(pkgutil.iter_modules(package.__path__), key=lambda module: module.name):
        if info.name.startswith("_"):
            continue

        def note(error: Exception, own: str = info.name) -> None:
            broken.append(BrokenPlugin(own, error))

        with Edge(note):
            module = importlib.import_module(f"{package.__name__}.{info.name}")
            if hasattr(module, name):
                modules.append(module)
    _log_broken(package.__name__, broken)
    return Room(tuple(modules), tuple(broken))


def _log_broken(package: str, broken: list[BrokenPlugin]) -> None:
    """Log the broken modules, one a line. Modules that lack the same package share a line, as signals without torch."""
    missing = [_find_missing(plugin.error) for plugin in broken]
    for name in dict.fromkeys(missing):
        without = [plugin for plugin, other in zip(broken, missing, strict=True) if other == name]
        if name not in ("", package.partition(".")[0]) and len(without) > 1:
            names = ", ".join(plugin.name for plugin in without)
            _log.warning("stepscope: %s is not installed; left out of %s: %s", name, package, names)
            continue
        for plugin in without:
            _log.warning("stepscope: %s.%s is left out: %s", package, plugin.name, plugin.reason)


def _find_missing(error: Exception) -> str:
    return (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""


def find_plugins(package: ModuleType, name: str) -> tuple[Any, ...]:
    """Return the plug-ins that the package's modules declare as `name` (one, or a tuple), sorted by module name."""
    declared = (getattr(module, name) for module in search_room(package, name).modules)
    return tuple(plugin for each in declared for plugin in (each if isinstance(each, tuple) else (each,)))


def explain_failure(error: Exception) -> str:
    """Return an exception in one line: its type, and the first line of its message."""
    text = str(error).splitlines()
    return f"{type(error).__name__}{f': {text[0]}' if text else ''}"[:_LONGEST_LINE]
