"""What the API can do, as a page that needs nothing from elsewhere; the machine's version is openapi.json."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse

from profiler_server.web.services import ServicesOf
from profiler_server.web.shell import Shell

ROUTER = APIRouter()


@dataclass(frozen=True)
class Parameter:
    name: str
    where: str
    text: str
    required: bool


@dataclass(frozen=True)
class Endpoint:
    method: str
    path: str
    summary: str
    parameters: tuple[Parameter, ...]


@ROUTER.get("/api/v1/docs", include_in_schema=False)
def show_docs(request: Request, services: ServicesOf) -> HTMLResponse:
    endpoints = tuple(list_endpoints(request.app.openapi()))
    return services.respond("api_docs.html", Shell("API", "/api/v1/docs"), endpoints=endpoints)


def list_endpoints(description: dict[str, Any]) -> Iterator[Endpoint]:
    for path, methods in sorted(description["paths"].items()):
        for method, endpoint in methods.items():
            parameters = tuple(
                Parameter(p["name"], p["in"], _describe(p), bool(p.get("required")))
                for p in endpoint.get("parameters", ())
            )
            yield Endpoint(method.upper(), path, endpoint.get("summary", ""), parameters)


def _describe(parameter: dict[str, Any]) -> str:
    schema = parameter.get("schema", {})
    default = schema.get("default")
    parts = [parameter.get("description", "")]
    parts += [f"One of {', '.join(map(str, schema['enum']))}."] if "enum" in schema else []
    parts += [f"Default {default}."] if default not in (None, "") else []
    return " ".join(part for part in parts if part)
