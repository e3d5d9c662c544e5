"""The figures of runs that record, or ended lately, for Prometheus."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from profiler_server.fleet.prometheus import render_metrics
from profiler_server.web.services import ServicesOf

ROUTER = APIRouter(tags=["server"])


@ROUTER.get("/metrics", summary="Runs that record or ended within 15 minutes, for Prometheus", response_class=Response)
def read_metrics(services: ServicesOf) -> Response:
    text, media_type = render_metrics(services.gauges.read())
    return Response(text, media_type=media_type)
