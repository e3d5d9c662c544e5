"""Find the plug-ins of a room: every module in a package that declares a given name. Nothing lists them.

One policy for all rooms: a module that cannot be imported is one line in the log, and told to whoever can show it; it
takes no other plug-in away.
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
    """A module that cannot be imported; `name` is the last part of its name."""

    name: str
    error: Exception

    @property
    def reason(self) -> str:
        """What is wrong with it, in one line."""
        return explain_failure(self.error)


@dataclass(frozen=True)
class Room:
    """The modules that declare the name, in the order of their own names, and those that cannot be imported."""

    modules: tuple[ModuleType, ...]
    broken: tuple[BrokenPlugin, ...]


def search_room(package: ModuleType, name: str) -> Room:
    """Import every module of the package but those that begin with an underscore, and return those that declare `name`."""
    modules: list[ModuleType] = []
    broken: list[BrokenPlugin] = []
    for info in sorted(pkgutil.iter_modules(package.__path__), key=lambda module: module.name):
        if info.name.startswith("_"):
            continue

        def tell(error: Exception, own: str = info.name) -> None:
            _log.warning("stepscope: %s.%s is left out: %s", package.__name__, own, explain_failure(error))
            broken.append(BrokenPlugin(own, error))

        with Edge(tell):
            module = importlib.import_module(f"{package.__name__}.{info.name}")
            if hasattr(module, name):
                modules.append(module)
    return Room(tuple(modules), tuple(broken))


def find_plugins(package: ModuleType, name: str) -> tuple[Any, ...]:
    """Return what the modules of the package that declare `name` declare, by module name."""
    return tuple(getattr(module, name) for module in search_room(package, name).modules)


def explain_failure(error: Exception) -> str:
    """Return what an exception says in one line: its kind, and the first line of its text."""
    text = str(error).splitlines()
    return f"{type(error).__name__}{f': {text[0]}' if text else ''}"[:_LONGEST_LINE]
