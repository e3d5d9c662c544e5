"""Find plug-ins by their being there. One that cannot be imported is reported and harms no other."""

from __future__ import annotations

import importlib
import logging
import pkgutil
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType

from profiler_server.page import Page

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class BrokenModule:
    """A plug-in that failed to load; `name` is the last part of its module name."""

    name: str
    error: BaseException


@dataclass(frozen=True)
class PageSet:
    """The pages in the order of the navigation, and the modules that gave none."""

    pages: tuple[Page, ...]
    broken: tuple[BrokenModule, ...]

    def find(self, slug: str) -> Page | None:
        return next((page for page in self.pages if page.slug == slug), None)

    def find_broken(self, name: str) -> BrokenModule | None:
        return next((module for module in self.broken if module.name == name), None)


def find_modules(package: ModuleType) -> Iterator[ModuleType | BrokenModule]:
    """Import every public module of a package, in the order of their names."""
    for entry in pkgutil.iter_modules(package.__path__):
        if entry.name.startswith("_"):
            continue
        try:
            yield importlib.import_module(f"{package.__name__}.{entry.name}")
        except Exception as error:  # A plug-in can fail in any way; the server must still show the rest.
            log.exception("%s.%s cannot be loaded", package.__name__, entry.name)
            yield BrokenModule(entry.name, error)


def find_pages(package: ModuleType) -> PageSet:
    """Find every module of a package that declares a PAGE."""
    found = list(find_modules(package))
    pages = [m.PAGE for m in found if not isinstance(m, BrokenModule) and isinstance(getattr(m, "PAGE", None), Page)]
    broken = tuple(m for m in found if isinstance(m, BrokenModule))
    return PageSet(tuple(sorted(pages, key=lambda page: (page.order, page.slug))), broken)
