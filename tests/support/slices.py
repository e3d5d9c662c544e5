"""Rows of slices and tracks that tests write by hand."""

from __future__ import annotations

from typing import Any


def slice_row(number: int, track: int, start_ns: int, duration_ns: int, **columns: Any) -> dict[str, Any]:
    """Return a kernel of step 1 on a track."""
    place = {"id": number, "track": track, "depth": 0, "start_ns": start_ns, "duration_ns": duration_ns}
    return {**place, "name": "k", "category": "kernel", "step": 1, **columns}


def track_rows(*kinds: str) -> list[dict[str, Any]]:
    """Return one track per kind, numbered from 0."""
    return [
        {"track": number, "kind": kind, "name": kind, "process": "", "order": number, "unit": ""}
        for number, kind in enumerate(kinds)
    ]
