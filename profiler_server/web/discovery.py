"""The pages that there are, and those that cannot be imported: each is one line of the navigation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from collector.plugins import BrokenPlugin, search_room
from profiler_server.page import Page


@dataclass(frozen=True)
class PageSet:
    """The pages in the order of the navigation, and the modules that gave none."""

    pages: tuple[Page, ...]
    broken: tuple[BrokenPlugin, ...]

    def find(self, slug: str) -> Page | None:
        return next((page for page in self.pages if page.slug == slug), None)

    def find_broken(self, name: str) -> BrokenPlugin | None:
        return next((module for module in self.broken if module.name == name), None)


def find_pages(package: ModuleType) -> PageSet:
    """Find every module of a package that declares a PAGE."""
    room = search_room(package, "PAGE")
    pages: list[Page] = [replace(module.PAGE, ask=find_asking(module)) for module in room.modules]
    return PageSet(tuple(sorted(pages, key=lambda page: (page.order, page.slug))), room.broken)


def find_asking(module: ModuleType) -> Callable[[Any], Any]:
    """Return what a page is given of a request: all of it, or the facts that a module `asking` beside the page asks for."""
    name = f"{module.__name__}.asking"
    if not hasattr(module, "__path__") or find_spec(name) is None:
        return lambda request: request
    return lambda request: import_module(name).ask(request)
