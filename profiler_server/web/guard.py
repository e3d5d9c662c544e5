"""The checks of every request and the headers of every answer: host check, query bounds, security headers."""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocketClose

from profiler_server.settings import LOOPBACK_HOSTS, WILDCARD_HOSTS, Settings, is_loopback_host
from profiler_server.web.answers import refuse
from profiler_server.web.links import API

_HOST = re.compile(r"(?:\[(?P<v6>[0-9a-f:.]+)\]|(?P<name>[a-z0-9._-]+))(?::\d{1,5})?")


class Hosts:
    """The permitted values of `Host`: loopback names, the bound address, this machine's name, and allowed names."""

    def __init__(self, settings: Settings) -> None:
        own = () if settings.is_loopback else (socket.gethostname(),)
        bound = () if settings.host in WILDCARD_HOSTS else (settings.host,)
        given = (strip_port(host.lower()) or host.lower() for host in settings.allowed_hosts)
        self.names = tuple(sorted({*LOOPBACK_HOSTS, *given, *(name.lower() for name in (*own, *bound))}))
        self._is_wildcard = settings.host in WILDCARD_HOSTS

    def take(self, scope: Mapping[str, Any], header: str) -> bool:
        """Return whether the server accepts `header`, the value of a `Host` or similar header: it must name this
        server.

        A server that is bound to every address also permits the address that the client reached.
        """
        host = strip_port(header)
        if host in self.names:
            return True
        reached = scope.get("server")
        return self._is_wildcard and bool(host) and reached is not None and host == str(reached[0])


def strip_port(header: str) -> str:
    """Return the host of `name`, `name:port`, `[::1]` or `[::1]:port` in lower case; empty for any other text."""
    found = _HOST.fullmatch(header.lower())
    return (found["v6"] or found["name"]) if found else ""


QUERY_LIMIT_BYTES = 8192
QUERY_LIMIT_FIELDS = 64
VALUE_LIMIT = 2000
PATH_LIMIT = 4096

CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "font-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'self'; object-src 'none'"
)
# No Cross-Origin-Opener-Policy: the timeline passes a trace to a window that it opened. `same-origin` would cut this
# connection.
SECURITY_HEADERS = {
    "Content-Security-Policy": CONTENT_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=(), payment=(), usb=()",
}


def is_loopback(scope: Scope) -> bool:
    client = scope.get("client")
    return client is not None and is_loopback_host(client[0])


class Guard:
    """ASGI middleware against requests from other sites.

    A page of another site can reach the server only under that site's host name, which the host check refuses (DNS
    rebinding). A request that changes something must come from our own pages. A request that a page of another site
    makes without a click, such as for an image, is refused before any work.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._hosts = Hosts(settings)
        self._proxied = frozenset(host.lower() for host in settings.allowed_hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":  # no route accepts one, and the inner middlewares handle only requests
            await WebSocketClose()(scope, receive, send)
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", "no-store")  # what a run holds changes between two requests
            await send(message)

        refusal = self._refuse(scope)
        if refusal is None:
            await self._app(scope, receive, send_guarded)
        else:
            await refuse(str(scope["path"]), *refusal)(scope, receive, send_guarded)

    def _refuse(self, scope: Scope) -> tuple[int, str] | None:
        headers = Headers(scope=scope)
        if not self._hosts.take(scope, headers.get("host", "")):
            names = ", ".join(self._hosts.names)
            return 421, f"This server answers to {names}; the browser asked for another host. --allowed-host adds one."
        if scope["method"] not in ("GET", "HEAD", "OPTIONS"):
            if not self._is_own_page(headers, str(scope.get("scheme", "http"))):
                return 403, "A request that changes something must come from a page of this server."
        elif _is_embedded(headers, str(scope["path"])) or not self._is_own_origin(
            headers, str(scope.get("scheme", "http"))
        ):
            return 403, "Pages of other sites may link to this server, and load nothing from it."
        if len(scope.get("raw_path") or b"") > PATH_LIMIT:
            return 414, f"The address is longer than {PATH_LIMIT} bytes."
        return refuse_query(scope.get("query_string", b""))

    def _is_own_page(self, headers: Headers, scheme: str) -> bool:
        """Return whether a request comes from our own page, or from no page at all. A page on another port is
        foreign.
        """
        return headers.get("sec-fetch-site", "none") in ("same-origin", "none") and self._is_own_origin(headers, scheme)

    def _is_own_origin(self, headers: Headers, scheme: str) -> bool:
        """Return whether a request names no origin other than ours.

        The scheme that a proxy reports is not trusted. So for the host name of a proxy, both schemes count as ours.
        """
        origin, host = headers.get("origin"), headers.get("host", "").lower()
        schemes = ("http", "https") if host in self._proxied or strip_port(host) in self._proxied else (scheme,)
        return origin is None or origin.lower() in [f"{name}://{host}" for name in schemes]


def _is_embedded(headers: Headers, path: str) -> bool:
    """Return whether a page of another site makes this request without a click of the user.

    A followed link to a page is no such request. A followed link to API data is one, as the data may take long to make.
    """
    if headers.get("sec-fetch-site", "none") in ("same-origin", "none"):
        return False
    is_followed = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
    return not is_followed or (path.startswith(API) and path != f"{API}/docs")


def refuse_query(query: bytes) -> tuple[int, str] | None:
    """Return status and reason if a query string is out of bounds, else None."""
    if len(query) > QUERY_LIMIT_BYTES:
        return 414, f"The query is longer than {QUERY_LIMIT_BYTES} bytes."
    try:
        fields = parse_qsl(query.decode("latin-1"), keep_blank_values=True, max_num_fields=QUERY_LIMIT_FIELDS)
    except ValueError:
        return 400, f"The query has more than {QUERY_LIMIT_FIELDS} fields."
    if any(len(value) > VALUE_LIMIT for _, value in fields):
        return 400, f"A value of the query is longer than {VALUE_LIMIT} characters."
    return None
