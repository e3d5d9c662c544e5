"""Access control: on a network, a request needs the server's token.

A browser first sends the token in the link that the server printed, and then as a cookie. A program sends it as
`Authorization: Bearer`.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable
from urllib.parse import parse_qsl, quote, urlencode

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from profiler_server.settings import Settings
from profiler_server.web.links import API

FIELD = "token"
HEALTH_PATH = f"{API}/health"
_OPEN_PATHS = (HEALTH_PATH, "/favicon.ico")
_OPEN_BELOW = "/static/"
_REFUSAL = "This server asks for a token, which this request does not bring"


class TokenGate:
    """ASGI middleware that checks the token. `answer` makes the page or JSON of a refusal. Without a token, a server on
    a network refuses all requests.
    """

    def __init__(
        self, app: ASGIApp, settings: Settings, answer: Callable[[Request, Exception], Awaitable[Response]]
    ) -> None:
        self._app, self._token, self._asks, self._answer = app, settings.token, settings.asks_for_token, answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or not self._asks or _is_open(scope["path"]):
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        cookie = _name_cookie(scope)
        known = self._knows(request.cookies.get(cookie, "")) or self._knows(_read_bearer(request))
        link_token = request.query_params.get(FIELD) if _is_page(request) else None
        if link_token is not None and (known or self._knows(link_token)):
            answer = _lead_on(request)
            answer.set_cookie(cookie, self._token, httponly=True, samesite="strict", path="/")
            await answer(scope, receive, send)
        elif known:
            await self._app(scope, receive, send)
        else:
            answer = await self._answer(request, HTTPException(401, _REFUSAL))
            answer.headers["WWW-Authenticate"] = "Bearer"
            await answer(scope, receive, send)

    def _knows(self, given: str) -> bool:
        same = hmac.compare_digest(given.encode("utf-8", "replace"), self._token.encode())
        return same and bool(self._token)


def _is_open(path: str) -> bool:
    return path.startswith(_OPEN_BELOW) or path in _OPEN_PATHS


def _is_page(request: Request) -> bool:
    return request.method in ("GET", "HEAD") and not request.url.path.startswith(API)


def _name_cookie(scope: Scope) -> str:
    """Return a cookie name that contains the port, because browsers send a cookie to every port of a host."""
    server = scope.get("server")
    return f"stepscope-token-{server[1] if server else 0}"


def _read_bearer(request: Request) -> str:
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    return given.strip() if scheme.lower() == "bearer" else ""


def _lead_on(request: Request) -> Response:
    query = parse_qsl(request.scope["query_string"].decode("latin-1"), keep_blank_values=True)
    kept = urlencode([(name, value) for name, value in query if name != FIELD])
    # Only one slash at the start: an address that begins with two slashes names another host.
    target = "/" + quote(request.url.path.lstrip("/")) + (f"?{kept}" if kept else "")
    if request.headers.get("sec-fetch-site", "none") in ("none", "same-origin"):
        return RedirectResponse(target, 303)
    # After a click on a page of another site, a browser would not send a strict cookie with a redirect.
    return HTMLResponse("", headers={"Refresh": f"0; url={target}"})
