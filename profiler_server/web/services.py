"""Objects that the routes share, made once per app."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from typing import Annotated, Any

from fastapi import Depends, Request
from starlette.responses import HTMLResponse

from collector.format.schema.errors import RunError
from profiler_server.derive.store import find_store
from profiler_server.fleet.gauges import Gauges, RunGauges
from profiler_server.fleet.telemetry import Telemetry
from profiler_server.settings import Settings
from profiler_server.store.catalog import Catalog
from profiler_server.store.headline import RunEntry
from profiler_server.web.frontend import StaticFiles, Templates, find_frontend
from profiler_server.web.links import Links
from profiler_server.web.shell import PageSet, Shell, find_pages
from profiler_server.web.uploads.imports import Imports
from profiler_server.web.verdicts import Diagnoses, Outcomes

FIRST_LOOK_S = 0.3
"""Time for which a page waits for runs that were never read. Such runs are known by the name of their folder."""


class Services:
    """What the routes of one app share: settings, the store, the catalog of runs, pages, templates, links,
    diagnoses, outcomes of advice and imports."""

    def __init__(self, settings: Settings) -> None:
        frontend = find_frontend()
        self.settings = settings
        self.store = find_store()
        self.catalog = Catalog(settings.base_dir)
        self.gauges = Gauges(self.catalog)
        self.static = StaticFiles(frontend / "static")
        self._templates_files = StaticFiles(frontend / "templates")
        self.links = Links(lambda: self.static.version)
        self.templates = Templates(frontend / "templates", self.links)
        self.diagnoses = Diagnoses()
        self.outcomes = Outcomes(self.catalog)
        self.imports = Imports(
            self.catalog.base_dir, on_made=self.catalog.look_again, memory_bytes=settings.import_memory_bytes
        )
        self._lock = threading.Lock()

    def start_telemetry(self) -> Telemetry | None:
        """Start sending metrics, and return the sender; None if the settings name no endpoint."""
        endpoint = self.settings.otlp_endpoint
        return Telemetry(endpoint, self._read_gauges) if endpoint else None

    def _read_gauges(self) -> Sequence[RunGauges]:
        with self.store.held():  # in a thread of OpenTelemetry
            return self.gauges.read()

    @cached_property
    def _pages(self) -> PageSet:
        return find_pages(importlib.import_module("profiler_server.pages"))

    @property
    def pages(self) -> PageSet:
        """Return the pages, found at first use, so that the run list is shown before pandas and DuckDB are imported."""
        with self._lock:
            return self._pages

    def warm_up(self, runs: Sequence[RunEntry]) -> None:
        """Import the pages and start judging `runs` in the background, because a reader of the run list usually opens a
        run next.
        """
        if "_pages" not in vars(self):
            self.store.background.start("pages", lambda: self.pages)
        for run in runs:
            with suppress(RunError):  # it may vanish at any moment
                self.diagnoses.peek(run)

    def find_version(self) -> str:
        """Return a text that changes with any file from which pages are made."""
        return f"{self.static.version}-{self._templates_files.version}"

    def respond(self, template: str, shell: Shell, status: int = 200, **context: Any) -> HTMLResponse:
        names = {"run_id": shell.run.id if shell.run else None, "rank": shell.rank}
        links = shell.links or self.links
        text = self.templates.render(template, shell=shell, links=links, **names, **context)
        return HTMLResponse(text, status)


def find_services(request: Request) -> Services:
    services: Services = request.app.state.services
    return services


ServicesOf = Annotated[Services, Depends(find_services)]
