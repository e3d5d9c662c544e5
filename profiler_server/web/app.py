"""The app of the server. Modules with routers are found, errors become pages or JSON, and every answer passes the
guard."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from collector.format.schema.errors import StepscopeError
from collector.plugins import find_plugins
from collector.version import __version__
from profiler_server.derive.store import Store
from profiler_server.settings import Settings
from profiler_server.web import routes
from profiler_server.web.answers import ErrorView, describe_error, describe_status
from profiler_server.web.bounds import BodyLimit, Crowding
from profiler_server.web.guard import SECURITY_HEADERS, Guard, is_loopback
from profiler_server.web.links import API
from profiler_server.web.parameters import refuse_unknown_names
from profiler_server.web.revalidation import Revalidation
from profiler_server.web.routes import run_list, server
from profiler_server.web.services import Services, find_services
from profiler_server.web.shell import Shell
from profiler_server.web.token_gate import HEALTH_PATH, TokenGate

COMPRESSED_PATHS = ("/static/", "/runs/", "/compare")
SMALLEST_BYTES = 1024
_FIRST_ROUTERS = (server.ROUTER, run_list.ROUTER)
_FIRST_PATHS = ("/static/", "/favicon.ico", HEALTH_PATH)


def create_app(settings: Settings) -> FastAPI:
    app = FastAPI(
        title="Stepscope",
        version=__version__,
        openapi_url=f"{API}/openapi.json",
        docs_url=None,
        redoc_url=None,
        lifespan=_run_services,
    )
    app.state.services = Services(settings)
    _include(app, _FIRST_ROUTERS)
    app.add_middleware(_LaterRoutes, api=app)
    for kind in (StepscopeError, HTTPException, RequestValidationError, Exception):
        app.add_exception_handler(kind, _answer_error)
    app.add_middleware(Crowding)
    services: Services = app.state.services
    app.add_middleware(Revalidation, base_dir=services.catalog.base_dir, version=services.find_version)
    app.add_middleware(_Compression)
    app.add_middleware(BodyLimit)
    app.add_middleware(TokenGate, settings=settings, answer=_answer_error)
    app.add_middleware(Guard, settings=settings)
    app.add_middleware(_Holding, store=services.store)
    return app


class _Compression:
    """Gzip for pages and static text. Loopback clients get no gzip, because for them it takes longer than it saves.

    API answers are not compressed here. The route of the tiles compresses its own typed arrays; gzip would only delay
    them.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._plain = app
        self._gzip = GZipMiddleware(app, SMALLEST_BYTES, 5)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        wanted = scope["type"] == "http" and not is_loopback(scope) and _is_text(scope["path"])
        await (self._gzip if wanted else self._plain)(scope, receive, send)


def _is_text(path: str) -> bool:
    return path == "/" or path.startswith(COMPRESSED_PATHS)


class _Holding:
    """Middleware that makes the app's store the current store while a request is answered."""

    def __init__(self, app: ASGIApp, store: Store) -> None:
        self._app = app
        self._store = store

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._store.held():
            await self._app(scope, receive, send)


@asynccontextmanager
async def _run_services(app: FastAPI) -> AsyncIterator[None]:
    app.state.services.imports.resume()
    telemetry = app.state.services.start_telemetry()
    yield
    if telemetry is not None:
        await run_in_threadpool(telemetry.close)
    await run_in_threadpool(app.state.services.store.close)
    app.state.services.catalog.close()
    app.state.services.diagnoses.close()
    app.state.services.imports.close()


class _LaterRoutes:
    """Middleware that adds the routes of runs to the app after the first page, or before the first request for one of
    them.

    Their import takes 0.6 s, a third of the time in which a new server answers.
    """

    def __init__(self, app: ASGIApp, api: FastAPI) -> None:
        self._app = app
        self._api = api
        self._lock = threading.Lock()
        self._are_there = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_first = scope["type"] != "http" or scope["path"] == "/" or scope["path"].startswith(_FIRST_PATHS)
        if not is_first and not self._are_there:
            await run_in_threadpool(self._add)
        await self._app(scope, receive, send)
        if scope["type"] == "http" and not self._are_there:
            services: Services = self._api.state.services
            services.store.background.start("routes", self._add)

    def _add(self) -> None:
        with self._lock:
            if not self._are_there:
                _include(self._api, [one for one in find_plugins(routes, "ROUTER") if one not in _FIRST_ROUTERS])
                self._are_there = True


def _include(app: FastAPI, routers: Sequence[APIRouter]) -> None:
    """Include the routes of routers, longer paths first. Ids may contain slashes, so `{id}/steps` would also match
    `{id}/tables/steps`.
    """
    found = [route for router in routers for route in router.routes if isinstance(route, APIRoute)]
    for route in found:
        if not route.include_in_schema and route.methods and "GET" in route.methods:
            route.methods.add("HEAD")  # monitors and link checkers send HEAD requests
    found.sort(key=lambda route: -route.path.count("/"))
    merged = APIRouter()
    merged.routes.extend(found)
    app.include_router(merged, dependencies=[Depends(refuse_unknown_names)])


async def _answer_error(request: Request, error: Exception) -> Response:
    view = _describe_validation(error.errors()) if isinstance(error, RequestValidationError) else describe_error(error)
    # The answer to an unexpected error is sent outside of the guard, so its headers are set here.
    headers = {**SECURITY_HEADERS, "Cache-Control": "no-store"}
    if request.url.path.startswith(API):
        return JSONResponse(view.to_json(), view.status, headers)
    shell = Shell(view.title, request.url.path, dict(request.query_params))
    answer = find_services(request).respond("error.html", shell, view.status, error=view)
    answer.headers.update(headers)
    return answer


def _describe_validation(problems: Sequence[Any]) -> ErrorView:
    lines = [f"{problem['loc'][-1]}: {_say_problem(problem)}" for problem in problems[:8]]
    return describe_status(422, "; ".join(lines))


def _say_problem(problem: Mapping[str, Any]) -> str:
    """Return a validation problem as text, without the regular expression that the value should match."""
    if problem["type"] == "string_pattern_mismatch":
        return f"{str(problem['input'])[:40]!r} is not in the form that {API}/docs describes"
    return str(problem["msg"])
