"""Whether an imported trace holds all that it should, as it was found when it was read."""

from __future__ import annotations

from collector.format.run import RankRun

COMPLETE = "complete"
_LONGEST = 1000


def read_completeness(rank: RankRun) -> str | None:
    """Return `complete`, or what is missing or cannot be true; None where no trace was checked. Raises as `manifest` does."""
    found = rank.manifest.facts.get("completeness")
    return found[:_LONGEST] if isinstance(found, str) and found else None


def say_completeness(found: str) -> str:
    """Return what was found as one line."""
    if found == COMPLETE:
        return "complete: every launch has its work, every event is there once and has its length"
    return f"not complete: {found}"
