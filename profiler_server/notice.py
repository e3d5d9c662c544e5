"""What a page is: the contract between `profiler_server/pages/*.py` (plug-ins), the web room and the templates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

PanelState = Literal["ready", "empty", "off", "failed", "pending"]


@dataclass(frozen=True)
class Notice:
    """Why a panel shows no data: not collected (`off`), nothing yet (`empty`), being computed (`pending`) or `failed`.

    `remedy` is code or advice.
    """

    state: PanelState
    title: str
    reason: str
    remedy: str = ""


@dataclass(frozen=True)
class Page:
    """One page of a run. A module of `profiler_server/pages` that declares one as PAGE is found; nothing lists it.

    `slug` is the last part of the URL `/runs/{id}/{slug}`, empty for Overall. `key` is the key after `g`.
    `build` returns a frozen dataclass, whose fields are the names that `template` uses, nothing more and nothing less. It
    is given the PageRequest, or what `ask` of a module `asking` beside the page makes of that: a page that is built from
    facts alone knows nothing of runs and files.
    `follows_steps` says that the page shows the steps of the filter only; one that does not says so above.
    """

    slug: str
    title: str
    order: int
    key: str
    template: str
    build: Callable[[Any], Any]
    follows_steps: bool = False
    ask: Callable[[Any], Any] = lambda request: request
