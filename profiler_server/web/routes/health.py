"""Whether the server answers, for a health check: the one address that needs no token."""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import APIRouter

from profiler_server.web.token_gate import HEALTH_PATH

ROUTER = APIRouter(tags=["server"])


@dataclass(frozen=True)
class Health:
    status: str


@ROUTER.get(HEALTH_PATH, summary="Whether the server answers; needs no token and tells of no run")
async def read_health() -> Health:
    return Health("ok")
