"""The type of a page: the contract between `profiler_server/pages/*.py` (plug-ins), the web room and the templates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

PanelState = Literal["ready", "empty", "off", "failed", "pending"]


@dataclass(frozen=True)
class Notice:
    """The reason why a panel shows no data: not collected (`off`), nothing yet (`empty`), being computed (`pending`) or
    `failed`.

    `remedy` is code or advice.
    """

    state: PanelState
    title: str
    reason: str
    remedy: str = ""


@dataclass(frozen=True)
class Page:
    """One page of a run. A page module of `profiler_server/pages` declares it as PAGE; no list names it.

    `slug` is the last segment of the URL `/runs/{id}/{slug}`, empty for Overall. `key` is the shortcut key after `g`.
    `build` returns a frozen dataclass with exactly the fields that `template` uses. Its argument is the PageRequest. If
    the page's package has a module `asking`, the argument is instead the result of the `ask` of that module, so that
    the page knows nothing of runs and files. `follows_steps` means that the page shows only the steps of the filter.
    Other pages show a note at their top.
    """

    slug: str
    title: str
    order: int
    key: str
    template: str
    build: Callable[[Any], Any]
    follows_steps: bool = False
    ask: Callable[[Any], Any] = lambda request: request
