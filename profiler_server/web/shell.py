"""The frame of every page: run, navigation, ranks, suggestions. Its name in templates is `shell`."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any

from collector.format.run import Run
from collector.format.schema.errors import RunError
from collector.format.schema.manifest import RankManifest, RunManifest, RunState, Warn
from collector.plugins import BrokenPlugin, search_room
from profiler_server.format import fill_in, form_plural
from profiler_server.page import Page
from profiler_server.store.headline import ListState, has_broken_steps, read_job_state, say_stand
from profiler_server.web.links import Links, QueryValue, encode_query, quote_id

if TYPE_CHECKING:
    from profiler_server.facts.results import Diagnosis

STATE_LABELS: dict[str, str] = {
    "recording": "Recording",
    "complete": "Complete",
    "failed": "Failed",
    "crashed": "Crashed",
    "imported": "Imported",
}
_TELL_THE_END = ("", "ranks")
"""Slugs of the pages that begin with how the job ended."""


@dataclass(frozen=True)
class PageSet:
    """The pages in the order of the navigation, and the modules that failed to load."""

    pages: tuple[Page, ...]
    broken: tuple[BrokenPlugin, ...]

    def find(self, slug: str) -> Page | None:
        return next((page for page in self.pages if page.slug == slug), None)

    def find_broken(self, name: str) -> BrokenPlugin | None:
        return next((module for module in self.broken if module.name == name), None)


def find_pages(package: ModuleType) -> PageSet:
    room = search_room(package, "PAGE")
    pages: list[Page] = [replace(module.PAGE, ask=find_asking(module)) for module in room.modules]
    return PageSet(tuple(sorted(pages, key=lambda page: (page.order, page.slug))), room.broken)


def find_asking(module: ModuleType) -> Callable[[Any], Any]:
    """Return the function that makes the argument of a page from a request.

    It is `ask` in the module `asking` of the page's package. A page without such a module gets the request itself.
    """
    name = f"{module.__name__}.asking"
    if not hasattr(module, "__path__") or find_spec(name) is None:
        return lambda request: request
    return lambda request: import_module(name).ask(request)


@dataclass(frozen=True)
class NavItem:
    """A link of the navigation. `key` is the shortcut key after `g`. `active` means that it is the current page. If
    the page is `broken`, `href` leads to the reason.
    """

    title: str
    href: str
    key: str
    active: bool
    broken: bool = False


@dataclass(frozen=True)
class StepFilter:
    """The step filter of a page. `text` is what the user typed, empty for all steps; `total` names the first and the
    last step of the rank. `error` is why the typed text is not used, "" if it is. `is_followed` means that the
    current page shows only these steps. `noun` is the noun for a step; batch if the run only infers.
    """

    text: str = ""
    total: str = ""
    error: str = ""
    is_followed: bool = False
    noun: str = "step"

    @property
    def nouns(self) -> str:
        return form_plural(self.noun)


@dataclass(frozen=True)
class RunView:
    """The run that a page shows. `path` is quoted for a shell command. `state` is that of the chosen rank, `recorded`
    its manifest; None if that is damaged.
    """

    id: str
    path: str
    manifest: RunManifest
    state: RunState
    recorded: RankManifest | None = None
    stands_still: str = ""
    """How the job stands still while it records, as a sentence; empty if it makes progress."""
    damage: str = ""
    """The error in the rank's manifest; empty if it can be read."""
    job_state: ListState | None = None
    """`failed` or `crashed` if the job ended so, whatever happened to the rank; else None."""
    is_job_recovered: bool = False
    has_broken_steps: bool = False
    """Whether the steps of a rank cannot be read."""

    @property
    def name(self) -> str:
        return self.manifest.name or self.id


@dataclass(frozen=True)
class Panel:
    """The suggestions for a run. `diagnosis` is None if there are none; `failure` is the reason. `pending`: the
    suggestions are still being computed.
    """

    diagnosis: Diagnosis | None
    failure: str = ""
    pending: bool = False


@dataclass(frozen=True)
class OutcomeView:
    """What became of the advice of the run `earlier` in this run, as sentences; empty if it followed none. `pending`
    means that the sentences are still being computed.
    """

    earlier: str
    sentences: tuple[str, ...] = ()
    pending: bool = False


@dataclass(frozen=True)
class Shell:
    """The data for the frame of a page. `path` and `query` come from the request."""

    title: str
    path: str = "/"
    query: Mapping[str, str] = field(default_factory=dict)
    run: RunView | None = None
    slug: str | None = None
    rank: int | None = None
    ranks: tuple[int, ...] = ()
    nav: tuple[NavItem, ...] = ()
    panel: Panel | None = None
    steps: StepFilter = StepFilter()
    outcome: OutcomeView | None = None
    """The outcome of the previous run's advice; on the Overall page only."""
    track_records: Mapping[str, str] = field(default_factory=dict)
    """For each rule, a sentence on how often its predictions were right in this base directory."""
    tried: Mapping[str, str] = field(default_factory=dict)
    """For each rule whose change was tried on the script, a sentence on the gain."""
    links: Links | None = None
    """Links that keep the rank and the steps of the request; None outside a run."""

    @property
    def notes(self) -> tuple[Warn, ...]:
        """Return the rank's warnings, except the one on the rank's end if the page begins with the job's end."""
        found = self.panel.diagnosis if self.panel is not None else None
        is_told = found is not None and bool(found.end) and self.slug in _TELL_THE_END
        warnings = self.run.recorded.warnings if self.run is not None and self.run.recorded is not None else ()
        return tuple(warning for warning in warnings if not (is_told and warning.code == "ended_by"))

    def here(self, **changes: QueryValue) -> str:
        """Return this page's URL with changed query values; None removes a value."""
        return quote_id(self.path) + encode_query({**self.query, **changes})


def build_run_view(run: Run, run_id: str, rank: int) -> RunView:
    """Return the description of a run. If the manifest of the rank is damaged, the field `damage` of the description
    has the error.
    """
    path = shlex.quote(str(run.path))
    try:
        ranked = run.rank(rank)
        is_live = ranked.state == "recording"
        job_state, is_recovered = read_job_state(run)
        ended_badly = job_state in ("failed", "crashed") and not is_live
        return RunView(
            run_id,
            path,
            run.manifest,
            ranked.state,
            ranked.manifest,
            stands_still=say_stand(run, run.ranks) if is_live else "",
            job_state=job_state if ended_badly else None,
            is_job_recovered=is_recovered and ended_badly,
            has_broken_steps=has_broken_steps(run, run.ranks),
        )
    except RunError as error:
        return RunView(run_id, path, run.manifest, "crashed", damage=str(error))


def build_nav(pages: PageSet, links: Links, run_id: str, current: str) -> tuple[NavItem, ...]:
    """List the pages of a run. Pages that failed to load come last."""
    return (
        *(NavItem(fill_in(p.title), links.page(run_id, p.slug), p.key, p.slug == current) for p in pages.pages),
        *(NavItem(p.name.capitalize(), links.page(run_id, p.name), "", p.name == current, True) for p in pages.broken),
    )
