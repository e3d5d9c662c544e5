"""Caching of pages and data of runs that have ended, so that they are not made again for each request.

Each answer has an ETag. An unchanged answer is not made a second time, and is not sent to a client that already has it.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from collector.format.finding import BASE_ID
from collector.format.schema import layout
from profiler_server.derive.background import Watch, watch_request
from profiler_server.derive.stamps import find_finished
from profiler_server.derive.store import find_store
from profiler_server.web.links import API

_BELOW = (f"{API}/runs/", "/runs/")
_CACHE_CONTROL = "private, no-cache"
"""Browsers store the answer for this user only, and revalidate it each time."""
LARGEST_KEPT_BYTES = 2 << 20
PATIENCE_S = 10.0
"""Time for which a request waits for another request that makes the same answer, s."""
_MOST_PIECES = 64
_OWN_TERMS = ("cache-control", "content-encoding", "etag", "set-cookie", "vary")
"""Headers whose answers get no tag, because these answers set their own caching or differ between users."""

RawHeaders = Sequence[tuple[bytes, bytes]]


class Revalidation:
    """ASGI middleware that answers 304 to clients whose copy is current, and keeps answers.

    `version` returns a text that changes with templates and static files. Tags of another server process never match.
    The middleware comes after the token and host checks, so that only permitted clients learn that something is
    unchanged.
    """

    def __init__(self, app: ASGIApp, base_dir: Path, version: Callable[[], str]) -> None:
        self._app = app
        self._tags = _Tags(base_dir, version)
        self._making: dict[str, asyncio.Event] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD") or not scope["path"].startswith(_BELOW):
            await self._app(scope, receive, send)
            return
        tag = await run_in_threadpool(self._tags.find, scope["path"], scope.get("query_string", b""))
        if tag is None:
            await self._app(scope, receive, send)
        elif tag in _list_known(Headers(scope=scope).get("if-none-match", "")):
            await Response(status_code=304, headers=_describe(tag))(scope, receive, send)
        else:
            await self._send(tag, scope, receive, send)

    async def _send(self, tag: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the kept answer. If another request is making the answer, wait for it, so that each page is made once."""
        making = self._making.get(tag)
        if making is not None:
            with suppress(asyncio.TimeoutError, TimeoutError):
                await asyncio.wait_for(making.wait(), PATIENCE_S)
        kept = find_store().find(("answer", tag))
        if kept is not None:
            await _send_kept(kept.value, scope, send)
            return
        made = asyncio.Event()
        if scope["method"] == "GET":
            self._making.setdefault(tag, made)
        try:
            await self._app(scope, receive, _Tagger(tag, send, _Keeping(scope["method"] == "GET", made)))
        finally:
            made.set()
            if self._making.get(tag) is made:
                del self._making[tag]


def _describe(tag: str) -> dict[str, str]:
    return {"ETag": tag, "Cache-Control": _CACHE_CONTROL}


def _list_known(header: str) -> set[str]:
    return {tag.strip() for tag in header.split(",")}


async def _send_kept(kept: tuple[RawHeaders, bytes], scope: Scope, send: Send) -> None:
    headers, body = kept
    await send({"type": "http.response.start", "status": 200, "headers": list(headers)})
    await send({"type": "http.response.body", "body": body if scope["method"] == "GET" else b""})


class _Tags:
    """The tag of each URL, which changes with the answer. Several threads may use it."""

    def __init__(self, base_dir: Path, version: Callable[[], str]) -> None:
        self._base_dir = base_dir
        self._version = version
        # Rules, pages and settings belong to this process. Another process may have others.
        self._process = secrets.token_hex(8)

    def find(self, path: str, query: bytes) -> str | None:
        """Return the tag of a URL. None if the URL names no run, or a run that has not ended: then nothing is
        cached."""
        runs = self._list_runs(path)
        stamps = [find_finished(run) for run in runs]
        if not stamps or None in stamps:
            return None
        digest = blake2b(digest_size=16)
        for part in (self._process, self._version(), path, query.decode("latin-1"), *map(str, runs), *map(str, stamps)):
            digest.update(part.encode("utf-8", "surrogatepass") + b"\0")
        return f'W/"{digest.hexdigest()}"'

    def _list_runs(self, path: str) -> list[Path]:
        """Return the folders of all runs that the path may name. Ids contain slashes, so several folders can match."""
        pieces = path.removeprefix(API).removeprefix("/runs/").split("/")
        found = []
        folder = self._base_dir
        for index, piece in enumerate(pieces[:_MOST_PIECES]):
            if piece in ("", ".", "..") or "\0" in piece or "\\" in piece:
                break
            if index or piece != BASE_ID:
                folder = folder / piece
            try:
                if layout.run_file(folder).is_file():
                    found.append(folder)
            except OSError:  # a name too long for the disk
                break
        return found


@dataclass(frozen=True)
class _Keeping:
    """The decision on one answer. `is_wanted` means that the answer is to be kept if possible.

    `settled` is set once the answer is kept, or once it is certain that it will not be kept.
    """

    is_wanted: bool
    settled: asyncio.Event


class _Tagger:
    """The sender of an answer. An answer with status 200 gets the tag, unless a part of it is still being computed."""

    def __init__(self, tag: str, send: Send, keeping: _Keeping) -> None:
        self._tag, self._send, self._keeping = tag, send, keeping
        self._watch: Watch = watch_request()
        self._headers: RawHeaders | None = None
        self._body: list[bytes] = []
        self._size = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._begin(message)
        elif message["type"] == "http.response.body" and self._headers is not None:
            self._collect(message)
        await self._send(message)

    def _begin(self, message: Message) -> None:
        headers = MutableHeaders(scope=message)
        own_terms = any(name in headers for name in _OWN_TERMS)
        if message["status"] != 200 or self._watch.is_provisional or own_terms:
            self._keeping.settled.set()
            return
        for name, value in _describe(self._tag).items():
            headers[name] = value
        if self._keeping.is_wanted:
            self._headers = tuple(message["headers"])

    def _collect(self, message: Message) -> None:
        body = message.get("body", b"")
        self._size += len(body)
        if self._size > LARGEST_KEPT_BYTES or self._headers is None:
            self._headers, self._body = None, []
            self._keeping.settled.set()
            return
        self._body.append(body)
        if not message.get("more_body", False):
            if not self._watch.is_provisional:
                find_store().put(("answer", self._tag), None, (self._headers, b"".join(self._body)))
            self._keeping.settled.set()
