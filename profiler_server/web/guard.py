"""What every request passes and every answer carries: host check, query bounds, security headers."""

from __future__ import annotations

from urllib.parse import parse_qsl

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from profiler_server.settings import LOOPBACK_HOSTS, Settings
from profiler_server.web.answers import refuse

QUERY_LIMIT_BYTES = 8192
QUERY_LIMIT_FIELDS = 64
VALUE_LIMIT = 2000
PATH_LIMIT = 4096

CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "font-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'self'; object-src 'none'"
)
# No Cross-Origin-Opener-Policy: the timeline hands a trace to a window that it opened, which `same-origin` would cut off.
SECURITY_HEADERS = {
    "Content-Security-Policy": CONTENT_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=(), payment=(), usb=()",
}


class Guard:
    """ASGI middleware. A page of another site can reach a loopback server only under a name of its own: the host
    check answers none of those (DNS rebinding), and a request that changes something must come from our own pages."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._hosts = {*LOOPBACK_HOSTS, settings.host, *settings.allowed_hosts} if settings.is_loopback else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
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
        host = strip_port(headers.get("host", ""))
        if self._hosts is not None and host not in self._hosts:
            return (
                421,
                f"This server answers only to {', '.join(sorted(self._hosts))}; the browser asked for another host.",
            )
        origin, changes = headers.get("origin"), scope["method"] not in ("GET", "HEAD", "OPTIONS")
        if changes and not _is_own_page(origin, headers, str(scope.get("scheme", "http"))):
            return 403, "A request that changes something must come from a page of this server."
        if len(scope.get("raw_path") or b"") > PATH_LIMIT:
            return 414, f"The address is longer than {PATH_LIMIT} bytes."
        return refuse_query(scope.get("query_string", b""))


def _is_own_page(origin: str | None, headers: Headers, scheme: str) -> bool:
    """Say whether a request comes from our own page, or from no page at all; another port is another origin."""
    if headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
        return False
    return origin is None or origin.lower() == f"{scheme}://{headers.get('host', '')}".lower()


def refuse_query(query: bytes) -> tuple[int, str] | None:
    """Return status and reason if a query string is out of bounds."""
    if len(query) > QUERY_LIMIT_BYTES:
        return 414, f"The query is longer than {QUERY_LIMIT_BYTES} bytes."
    try:
        fields = parse_qsl(query.decode("latin-1"), keep_blank_values=True, max_num_fields=QUERY_LIMIT_FIELDS)
    except ValueError:
        return 400, f"The query has more than {QUERY_LIMIT_FIELDS} fields."
    if any(len(value) > VALUE_LIMIT for _, value in fields):
        return 400, f"A value of the query is longer than {VALUE_LIMIT} characters."
    return None


def strip_port(host: str) -> str:
    """Return the host of `host:port` or `[::1]:port`, in lower case."""
    if host.startswith("["):
        return host[1:].split("]", 1)[0].lower()
    return host.rsplit(":", 1)[0].lower() if host.count(":") == 1 else host.lower()
