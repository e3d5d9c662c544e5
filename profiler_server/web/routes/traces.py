"""Traces that lie below the base directory: what is there, and making a run of it.

The guard in front of all routes refuses what comes from a page of another site.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, HTTPException

from collector.format.finding import JSON_LIMIT
from profiler_server.web.services import ServicesOf
from profiler_server.web.uploads.offers import TraceOffer, list_offers, start_offered
from profiler_server.web.uploads.status import ImportStatus, describe_import

ROUTER = APIRouter(prefix="/api/v1/traces", tags=["runs"])


@ROUTER.get("", summary="Traces below the base directory that no run was made of")
def list_traces(services: ServicesOf) -> tuple[TraceOffer, ...]:
    """Answer with what can be imported: one entry per run, with its files."""
    catalog = services.catalog
    return list_offers(catalog.list_runs(), catalog.base_dir, services.imports)


@ROUTER.post("/imports", summary="Import one of the listed traces", status_code=202)
def import_listed(
    services: ServicesOf,
    files: Annotated[
        list[str], Body(embed=True, min_length=1, max_length=JSON_LIMIT, description="The files of one listed entry.")
    ],
) -> ImportStatus:
    """Start the import; `/api/v1/imports/{id}` tells how it goes. 403 where uploads are off, 404 for any other file."""
    if not services.settings.upload_limit_bytes:
        raise HTTPException(403, "This server imports nothing; start it with --upload-limit to allow it.")
    catalog = services.catalog
    catalog.look_again()
    job = start_offered(files, catalog.list_runs(), catalog.base_dir, services.imports)
    if job is None:
        raise HTTPException(404, f"{files[0][:200]!r} is not among the traces to import; reload the list of runs.")
    return describe_import(job, services.links, services.imports.count_before(job))
