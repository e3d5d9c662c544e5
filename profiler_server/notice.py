"""The type of a page: the contract between the modules in `profiler_server/pages`, the web app and the templates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

PanelState = Literal["ready", "empty", "off", "failed", "pending"]


@dataclass(frozen=True)
class Notice:
    """The reason why a panel shows no data: not collected (`off`), nothing yet (`empty`), being computed (`pending`) or
    `failed`.

    `remedy` is code or advice that brings the data, "" if there is none.
    """

    state: PanelState
    title: str
    reason: str
    remedy: str = ""


@dataclass(frozen=True)
class Page:
    """One page of a run. A module in `profiler_server/pages` declares it as PAGE; pages are found, and no list names
    them.

    `slug` is the last segment of the URL `/runs/{id}/{slug}`, empty for Overall. `key` is the shortcut key after `g`.
    `build` returns a frozen dataclass with exactly the fields that `template` uses. Its argument is the PageRequest. If
    the page's package has a module `asking`, the argument is instead the result of `ask` in that module, so that the
    page knows neither runs nor files. `follows_steps` means that the page shows only the steps of the filter. Pages
    that do not follow the filter say so at their top."""

    slug: str
    title: str
    order: int
    key: str
    template: str
    build: Callable[[Any], Any]
    follows_steps: bool = False
    ask: Callable[[Any], Any] = lambda request: request
