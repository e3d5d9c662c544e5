"""Routes on the server itself: health, metrics, static files, and the description of the API."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fastapi import APIRouter, Request
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, HTMLResponse, Response

from profiler_server.fleet.metrics import render_metrics
from profiler_server.web.frontend import media_type
from profiler_server.web.services import ServicesOf
from profiler_server.web.shell import Shell
from profiler_server.web.token_gate import HEALTH_PATH

ROUTER = APIRouter(tags=["server"])


@ROUTER.get(HEALTH_PATH, summary="Whether the server answers; needs no token and tells of no run")
async def read_health() -> dict[str, str]:
    return {"status": "ok"}


@ROUTER.get("/metrics", summary="Runs that record or ended within 15 minutes, for Prometheus", response_class=Response)
def read_metrics(services: ServicesOf) -> Response:
    text, media_type = render_metrics(services.gauges.read())
    return Response(text, media_type=media_type)


@ROUTER.get("/static/{version}/{path:path}", include_in_schema=False)
def read_static(version: str, path: str, request: Request, services: ServicesOf) -> Response:
    """Send a static file. A request for an old version gets the current file, so that an open page keeps working.

    A large file is sent in gzip to all clients: a tunnel to this machine looks like a client on it.
    """
    found = services.static.find(path)
    if found is None:
        raise HTTPException(404, f"There is no static file {path!r}")
    current = version == services.static.version
    keep = "public, max-age=31536000, immutable" if current else "no-cache"
    headers = {"Cache-Control": keep, "Vary": "Accept-Encoding"}
    packed = services.static.pack(found) if "gzip" in request.headers.get("accept-encoding", "") else None
    if packed is not None:
        return Response(packed, media_type=media_type(found), headers={**headers, "Content-Encoding": "gzip"})
    return FileResponse(found, media_type=media_type(found), headers=headers)


@ROUTER.get("/favicon.ico", include_in_schema=False)
def read_icon(services: ServicesOf) -> FileResponse:
    return FileResponse(services.static.folder / "icon.svg", media_type="image/svg+xml")


@ROUTER.get("/api/v1/docs", include_in_schema=False)
def show_docs(request: Request, services: ServicesOf) -> HTMLResponse:
    endpoints = tuple(list_endpoints(request.app.openapi()))
    return services.respond("api_docs.html", Shell("API", "/api/v1/docs"), endpoints=endpoints)


def list_endpoints(description: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for path, methods in sorted(description["paths"].items()):
        for method, endpoint in methods.items():
            parameters = [{**parameter, "text": _describe(parameter)} for parameter in endpoint.get("parameters", ())]
            known = {"summary": endpoint.get("summary", ""), "parameters": parameters}
            yield {"method": method.upper(), "path": path, **known}


def _describe(parameter: dict[str, Any]) -> str:
    schema = parameter.get("schema", {})
    default = schema.get("default")
    parts = [parameter.get("description", "")]
    parts += [f"One of {', '.join(map(str, schema['enum']))}."] if "enum" in schema else []
    parts += [f"Default {default}."] if default not in (None, "") else []
    return " ".join(part for part in parts if part)
