"""JSON answers, and refusals of what never reaches a route."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.responses import JSONResponse, PlainTextResponse, Response

from profiler_server.web.errors import describe_status
from profiler_server.web.links import API


def send_json(value: Any, status: int = 200) -> Response:
    """Send dataclasses, mappings, sequences and figures as JSON; not-a-number and infinity become null."""
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def refuse(path: str, status: int, cause: str, headers: Mapping[str, str] | None = None) -> Response:
    """Refuse a request before any route sees it: in the API's one shape of errors, elsewhere as a line of text."""
    if path.startswith(API):
        return JSONResponse(describe_status(status, cause).to_json(), status, headers)
    return PlainTextResponse(cause + "\n", status, headers)
