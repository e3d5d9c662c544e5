"""How much heavy work is done at a time: whoever comes while others are at it waits a while, then is told to come again."""

from __future__ import annotations

import asyncio
import re

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from profiler_server.web.answers import refuse
from profiler_server.web.links import API

HEAVY = re.compile(rf"{API}/runs/.+/(timeline/(export|search|area)|tables/[^/]+|operators)")
AT_ONCE = 4
PATIENCE_S = 20.0
_RETRY_AFTER_S = 5
SLOW_AFTER_S = 2.0
MOST_SLOW = 16


class Crowding:
    """ASGI middleware. Downloads and searches share few places, so that pages keep threads to be made in.

    Who takes an answer slowly gives its place back, as far as there is room for such: it needs no thread meanwhile.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._places = asyncio.Semaphore(AT_ONCE)
        self._slow = 0

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
        place = _Place(self)
        try:
            await self._app(scope, receive, place.watch(send))
        finally:
            place.leave()


class _Place:
    """One of the few places, given back when the answer is sent or its reader turns out to be slow."""

    def __init__(self, crowding: Crowding) -> None:
        self._crowding = crowding
        self._is_slow = False

    def watch(self, send: Send) -> Send:
        async def send_watched(message: Message) -> None:
            timer = asyncio.get_running_loop().call_later(SLOW_AFTER_S, self._give_way)
            try:
                await send(message)
            finally:
                timer.cancel()

        return send_watched

    def leave(self) -> None:
        if self._is_slow:
            self._crowding._slow -= 1
        else:
            self._crowding._places.release()

    def _give_way(self) -> None:
        if not self._is_slow and self._crowding._slow < MOST_SLOW:
            self._is_slow = True
            self._crowding._slow += 1
            self._crowding._places.release()
