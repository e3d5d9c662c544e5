"""What logging took of the training thread."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from profiler_server.facts.steps import Logged

_MOST_TEXT = 100


def read_logged(facts: Mapping[str, Any]) -> Logged | None:
    """Return what was noted of logging, None for nothing."""
    noted = facts.get("logging")
    steps = noted.get("steps") if isinstance(noted, Mapping) else None
    entries = noted.get("libraries") if isinstance(noted, Mapping) else None
    if not _is_count(steps) or not steps or not isinstance(entries, list):
        return None
    found = [entry for entry in entries if isinstance(entry, Mapping) and _is_whole(entry)]
    if not found:
        return None
    most = max(found, key=lambda entry: int(entry["total_ns"]))
    name = str(most.get("name", ""))[:_MOST_TEXT]
    return Logged(name, most["calls"], most["total_ns"] / steps, most["longest_ns"])


def _is_whole(entry: Mapping[str, Any]) -> bool:
    return all(_is_count(entry.get(name)) for name in ("calls", "total_ns", "longest_ns"))


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
