"""Gzip for pages and static text. Answers of the API pack themselves: tiles are typed arrays that gzip only delays."""

from __future__ import annotations

from starlette.middleware.gzip import GZipMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from profiler_server.settings import is_loopback_host

COMPRESSED_PATHS = ("/static/", "/runs/", "/compare")
SMALLEST_BYTES = 1024


class Compression:
    """Compress below chosen paths only, and not for loopback clients, whom it costs more than it saves."""

    def __init__(self, app: ASGIApp) -> None:
        self._plain = app
        self._gzip = GZipMiddleware(app, SMALLEST_BYTES, 5)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        wanted = scope["type"] == "http" and not is_loopback(scope) and _is_text(scope["path"])
        await (self._gzip if wanted else self._plain)(scope, receive, send)


def _is_text(path: str) -> bool:
    return path == "/" or path.startswith(COMPRESSED_PATHS)


def is_loopback(scope: Scope) -> bool:
    """Say whether a request comes from this machine."""
    client = scope.get("client")
    return client is not None and is_loopback_host(client[0])
