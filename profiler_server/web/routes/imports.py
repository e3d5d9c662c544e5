"""The routes that make runs from trace files that a browser uploads.

The guard in front of all routes refuses requests from pages of other sites."""

from __future__ import annotations

import errno
from dataclasses import dataclass

from fastapi import APIRouter, HTTPException, Request
from starlette.requests import ClientDisconnect

from profiler_server.web.links import Links
from profiler_server.web.services import Services, ServicesOf
from profiler_server.web.uploads.imports import Import
from profiler_server.web.uploads.receiving import Receiver, TooLargeError, find_boundary, receive


@dataclass(frozen=True)
class ImportStatus:
    """An import as the API shows it. `state` is waiting, importing, done, failed or cancelled. `run_id` and `href`,
    the address of its run, are null until the run exists; `error` is null without one. `ahead` counts the imports
    that run before it."""

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


ROUTER = APIRouter(prefix="/api/v1", tags=["runs"])


@ROUTER.post("/imports", summary="Import trace files: multipart/form-data, one file per rank", status_code=202)
async def start_import(request: Request, services: ServicesOf) -> ImportStatus:
    """Receive an upload and start its import. Poll the import's state until it is done. 403 if uploads are off, 413 for
    too much."""
    limit = services.settings.upload_limit_bytes
    if not limit:
        raise HTTPException(403, "This server takes no uploads; start it with --upload-limit to allow them.")
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limit:
        raise HTTPException(413, f"{int(declared) >> 20:,} MiB is more than this server takes ({limit >> 20:,} MiB).")
    boundary = find_boundary(request.headers.get("content-type", ""))
    try:
        return await _take(request, services, boundary, limit)
    except TooLargeError as error:
        raise HTTPException(413, str(error)) from None
    except ClientDisconnect:  # hardly anyone is there to read this
        raise HTTPException(400, "The upload broke off; send it again.") from None
    except OSError as error:
        status = 507 if error.errno in (errno.ENOSPC, errno.EDQUOT) else 500
        raise HTTPException(status, f"The upload cannot be stored: {error.strerror or error}.") from None


async def _take(request: Request, services: Services, boundary: bytes, limit: int) -> ImportStatus:
    folder = services.imports.make_folder()
    kept = False
    try:
        files = await receive(request.stream(), Receiver(folder, boundary, limit))
        job = services.imports.start(folder, files)
        kept = True
        return describe_import(job, services.links, services.imports.count_before(job))
    finally:
        if not kept:  # also when the browser went away half-way
            services.imports.remove_folder(folder)


@ROUTER.get("/imports/{import_id}", summary="How an import goes")
def read_import(import_id: str, services: ServicesOf) -> ImportStatus:
    """Return the state of an import. 404 for an import that this server did not start, or no longer remembers."""
    job = services.imports.find(import_id)
    if job is None:
        raise HTTPException(404, "This server knows no such import.")
    return describe_import(job, services.links, services.imports.count_before(job))


@ROUTER.delete("/imports/{import_id}", summary="Cancel an import that waits or runs")
def cancel_import(import_id: str, services: ServicesOf) -> ImportStatus:
    """Cancel an import. 404 for an unknown import, 409 for an ended one.

    The upload is removed when the import stops, or, if it still waits, when its turn comes.
    """
    job = services.imports.cancel(import_id)
    if job is None:
        read_import(import_id, services)
        raise HTTPException(409, "This import has ended already.")
    return describe_import(job, services.links)
