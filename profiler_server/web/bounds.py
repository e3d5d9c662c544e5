"""Limits on concurrent work of the server, so that no client keeps it from serving the others.

A request body may have a few KiB, and must arrive within seconds, before the route runs. An upload is streamed and
must keep a minimum speed, and only a few uploads run at a time. A request for heavy work waits a while if other
heavy work runs. If none of that ends in time, the answer is to try again later.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from profiler_server.web.answers import refuse
from profiler_server.web.links import API

BODY_LIMIT_BYTES = 64 << 10
BODY_LIMIT_S = 10.0
UPLOAD_PATH = f"{API}/imports"
UPLOADS_AT_ONCE = 16
UPLOAD_PAUSE_LIMIT_S = 30.0
UPLOAD_SLOWEST_BYTES_PER_S = 1024
_WITHOUT_BODY = ("GET", "HEAD", "OPTIONS")


class BodyTooLargeError(Exception):
    """A body, or its announced length, exceeds the limit."""


class BodyLimit:
    """ASGI middleware that bounds request bodies.

    A small body is read whole before the route runs, and refused if it is too large or too late. An upload streams to
    its route; the number of concurrent uploads is limited.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._uploads = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in _WITHOUT_BODY:
            await self._app(scope, receive, send)
        elif scope["path"] == UPLOAD_PATH:
            await self._pass_upload(scope, receive, send)
        else:
            await self._pass_small(scope, receive, send)

    async def _pass_upload(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._uploads >= UPLOADS_AT_ONCE:
            cause = f"{UPLOADS_AT_ONCE} uploads are under way; send this one when one of them has ended."
            await refuse(UPLOAD_PATH, 503, cause, {"Retry-After": "5", "Connection": "close"})(scope, receive, send)
            return
        self._uploads += 1
        try:
            await self._app(scope, SteadyUpload(receive), send)
        finally:
            self._uploads -= 1

    async def _pass_small(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = str(scope["path"])
        try:
            messages = await asyncio.wait_for(read_small(scope, receive), BODY_LIMIT_S)
        except BodyTooLargeError:
            cause = f"This address takes at most {BODY_LIMIT_BYTES >> 10} KiB."
            await refuse(path, 413, cause)(scope, receive, send)
        except (asyncio.TimeoutError, TimeoutError):
            cause = f"The request did not arrive whole within {BODY_LIMIT_S:.0f} seconds."
            await refuse(path, 408, cause, {"Connection": "close"})(scope, receive, send)
        else:
            if messages[-1]["type"] != "http.disconnect":  # otherwise the client waits no longer
                await self._app(scope, _replay(messages, receive), send)


async def read_small(scope: Scope, receive: Receive) -> list[Message]:
    """Return all messages of a body. Raises BodyTooLargeError, before reading if `content-length` is over the limit."""
    announced = Headers(scope=scope).get("content-length", "")
    if announced.isdecimal() and int(announced[:20]) > BODY_LIMIT_BYTES:
        raise BodyTooLargeError
    messages: list[Message] = []
    taken = 0
    while not messages or messages[-1].get("more_body", False):
        messages.append(await receive())
        taken += len(messages[-1].get("body", b""))
        if taken > BODY_LIMIT_BYTES:
            raise BodyTooLargeError
    return messages


def _replay(messages: Sequence[Message], receive: Receive) -> Receive:
    kept = iter(messages)

    async def read_again() -> Message:
        return next(kept, None) or await receive()

    return read_again


class SteadyUpload:
    """A `receive` function of ASGI for uploads, with time limits. After a long pause, or at too low a mean speed, it
    returns `http.disconnect`.
    """

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._taken = 0
        self._started_s = time.monotonic()

    async def __call__(self) -> Message:
        try:
            message = await asyncio.wait_for(self._receive(), UPLOAD_PAUSE_LIMIT_S)
        except (asyncio.TimeoutError, TimeoutError):
            return {"type": "http.disconnect"}
        self._taken += len(message.get("body", b""))
        allowed_s = UPLOAD_PAUSE_LIMIT_S + self._taken / UPLOAD_SLOWEST_BYTES_PER_S
        if message.get("more_body", False) and time.monotonic() - self._started_s > allowed_s:
            return {"type": "http.disconnect"}
        return message


HEAVY = re.compile(rf"{API}/runs/.+/(timeline/(export|search)|tables/[^/]+|operators)")
AT_ONCE = 4
PATIENCE_S = 20.0
_RETRY_AFTER_S = 5
SLOW_AFTER_S = 2.0
MOST_SLOW = 16


class Crowding:
    """ASGI middleware that lets only `AT_ONCE` downloads and searches run at a time, so that threads remain for pages.
    Each of them holds a slot.

    A client that takes longer than `SLOW_AFTER_S` to receive a piece gives its slot back and is served on. At most
    `MOST_SLOW` clients at a time may do this.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._slow = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not HEAVY.fullmatch(scope["path"]):
            await self._app(scope, receive, send)
            return
        try:
            await asyncio.wait_for(self._slots.acquire(), PATIENCE_S)
        except (asyncio.TimeoutError, TimeoutError):
            cause = "The server is busy with other downloads; ask again in a moment."
            await refuse(scope["path"], 503, cause, {"Retry-After": str(_RETRY_AFTER_S)})(scope, receive, send)
            return
        slot = _Slot(self)
        try:
            await self._app(scope, receive, slot.watch(send))
        finally:
            slot.leave()


class _Slot:
    """A slot for one request. It is given back once the answer is sent, or once its client proves to be slow."""

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
            self._crowding._slots.release()

    def _give_way(self) -> None:
        if not self._is_slow and self._crowding._slow < MOST_SLOW:
            self._is_slow = True
            self._crowding._slow += 1
            self._crowding._slots.release()
