"""Ask a run that records for a detailed window: the one place where the server writes into a run.

The guard in front of all routes refuses what comes from a page of another site.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Body, Form, HTTPException
from starlette.responses import RedirectResponse, Response

from collector.format.schema.control import MOST_FIRST, MOST_STEPS, WindowRequest, write_control
from collector.format.schema.errors import OutputError
from profiler_server.store.mirror import find_mirror
from profiler_server.web.parameters import RunId
from profiler_server.web.services import Services, ServicesOf

ROUTER = APIRouter(tags=["runs"])


@dataclass(frozen=True)
class WindowOrder:
    """What was written to control.json."""

    first: int
    count: int
    file: str


@ROUTER.post(
    "/api/v1/runs/{run_id:path}/window", summary="Take a detailed window of a run that records", status_code=202
)
def order_window(
    run_id: RunId,
    services: ServicesOf,
    first: Annotated[int, Body(ge=0, le=MOST_FIRST, description="Step; one that has passed means the next.")],
    count: Annotated[int, Body(ge=1, le=MOST_STEPS, description="How many steps.")] = 3,
) -> WindowOrder:
    """Ask for steps `first` and following on every rank. 409 if the run does not record, or takes no windows."""
    return _order(services, run_id, WindowRequest(first, count))


@ROUTER.post("/runs/{run_id:path}/window", include_in_schema=False)
def order_window_from_page(
    run_id: RunId,
    services: ServicesOf,
    count: Annotated[int, Form(ge=1, le=MOST_STEPS)],
    first: Annotated[int, Form(ge=0, le=MOST_FIRST)] = 0,
    rank: int | None = None,
) -> Response:
    """Do the same for the form of the Step trace page, and go back there."""
    _order(services, run_id, WindowRequest(first, count))
    return RedirectResponse(services.links.page(run_id, "steps", rank) + "#window", 303)


def _order(services: Services, run_id: str, request: WindowRequest) -> WindowOrder:
    run = services.catalog.open(run_id)
    if run.state != "recording":
        raise HTTPException(409, f"{run_id} is {run.state}: a window can only be taken while a run records")
    if find_mirror(run.path) is not None:
        raise HTTPException(
            409, f"{run_id} lies behind a URL; ask on the host that records it, by profiler/control.json"
        )
    signal = next((entry for entry in run.rank().manifest.signals if entry.name == "window"), None)
    if signal is not None and signal.state in ("off", "failed"):
        raise HTTPException(409, f"{run_id} takes no detailed windows: {signal.reason}")
    try:
        write_control(run.path, request)
    except OSError as error:
        raise OutputError(f"the window of {run_id} cannot be ordered ({error.strerror or error})") from None
    return WindowOrder(request.first, request.count, "profiler/control.json")
