"""The state of an import, as the browser gets it."""

from __future__ import annotations

from dataclasses import dataclass

from profiler_server.web.links import Links
from profiler_server.web.uploads.imports import Import


@dataclass(frozen=True)
class ImportStatus:
    """An import, with the address of its run once there is one; `ahead` imports come before it."""

    id: str
    state: str
    files: tuple[str, ...]
    progress_frac: float
    run_id: str | None
    error: str | None
    href: str | None
    ahead: int = 0


def describe_import(job: Import, links: Links, ahead: int = 0) -> ImportStatus:
    href = links.page(job.run_id) if job.run_id else None
    return ImportStatus(job.id, job.state, job.files, job.progress_frac, job.run_id, job.error, href, ahead)
