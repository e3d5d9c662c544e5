"""JSON answers."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.responses import Response


def send_json(value: Any, status: int = 200) -> Response:
    """Send dataclasses, mappings, sequences and figures as JSON; not-a-number and infinity become null."""
    return Response(msgspec.json.encode(value), status, media_type="application/json")
