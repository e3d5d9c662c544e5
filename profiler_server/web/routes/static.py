"""Static files: for ever under the current version, unstored under any other."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse

from profiler_server.web.services import ServicesOf
from profiler_server.web.static import media_type

ROUTER = APIRouter()


@ROUTER.get("/static/{version}/{path:path}", include_in_schema=False)
def read_static(version: str, path: str, services: ServicesOf) -> FileResponse:
    """Send a static file. An old version gets today's file, so that a page kept open does not break."""
    found = services.static.find(path)
    if found is None:
        raise HTTPException(404, f"There is no static file {path!r}")
    current = version == services.static.version
    keep = "public, max-age=31536000, immutable" if current else "no-cache"
    return FileResponse(found, media_type=media_type(found), headers={"Cache-Control": keep})


@ROUTER.get("/favicon.ico", include_in_schema=False)
def read_icon(services: ServicesOf) -> FileResponse:
    return FileResponse(services.static.folder / "icon.svg", media_type="image/svg+xml")
