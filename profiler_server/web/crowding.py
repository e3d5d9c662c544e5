"""How much heavy work is done at a time: whoever comes while others are at it waits a while, then is told to come again."""

from __future__ import annotations

import asyncio
import re

from starlette.types import ASGIApp, Receive, Scope, Send

from profiler_server.web.answers import refuse
from profiler_server.web.links import API

HEAVY = re.compile(rf"{API}/runs/.+/(timeline/(export|search|area)|tables/[^/]+|operators)")
AT_ONCE = 4
PATIENCE_S = 20.0
_RETRY_AFTER_S = 5


class Crowding:
    """ASGI middleware. Downloads and searches share few places, so that pages keep threads to be made in."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._places = asyncio.Semaphore(AT_ONCE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not HEAVY.fullmatch(scope["path"]):
            await self._app(scope, receive, send)
            return
        try:
            await asyncio.wait_for(self._places.acquire(), PATIENCE_S)
        except (asyncio.TimeoutError, TimeoutError):
            cause = "The server is busy with other downloads; ask again in a moment."
            await refuse(scope["path"], 503, cause, {"Retry-After": str(_RETRY_AFTER_S)})(scope, receive, send)
            return
        try:
            await self._app(scope, receive, send)
        finally:
            self._places.release()
