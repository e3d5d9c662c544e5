"""Be told when a module has been imported, without importing it."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from collector.edge import hide_frame


class ImportWatch:
    """A finder that calls `then` once, when the import of a module has succeeded; what it raises reaches the importer."""

    def __init__(self, name: str, then: Callable[[], None]) -> None:
        self.name = name
        self.pid = os.getpid()
        self._then = then

    @property
    def is_waiting(self) -> bool:
        return self in sys.meta_path

    def stop(self) -> None:
        """Wait no longer."""
        if self.is_waiting:
            sys.meta_path.remove(self)

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Find the module through the other finders, and follow its execution."""
        if name != self.name:
            return None
        self.stop()
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            sys.meta_path.insert(0, self)
            return spec
        self._follow(spec.loader)
        return spec

    def _follow(self, loader: Any) -> None:
        execute = loader.exec_module

        def execute_then(module: ModuleType) -> None:
            del loader.exec_module  # the instance's own attribute, set below: the loader is as it was
            try:
                execute(module)
            except BaseException as error:
                hide_frame(error)
                raise
            self._then()

        loader.exec_module = execute_then
