"""Since when a run is slower or faster than those of its script before it, for the report."""

from __future__ import annotations

from typing import Any

from profiler_server.analysis.change_points import LevelChange
from profiler_server.format import clean_name, format_change, format_duration, format_number_of


def report_history(since: str, change: LevelChange) -> dict[str, Any]:
    """Return a change of level as plain data: `since` is the run that begins it, times are ns, `before` and `after` numbers
    of runs."""
    return {
        "since": since,
        "change_frac": change.change_frac,
        "before_ns": round(change.before_ns),
        "after_ns": round(change.after_ns),
        "before": change.before,
        "after": change.after,
        "chance": change.chance,
    }


def render_history(history: dict[str, Any] | None) -> str:
    """Return the history as a sentence; "" where there is none."""
    if history is None:
        return ""
    word = "slower" if history["change_frac"] > 0 else "faster"
    return (
        f"History: {word} since {clean_name(history['since'])}: the median step of the "
        f"{format_number_of(history['after'], 'run')} since then is {format_duration(history['after_ns'])}, "
        f"{format_change(history['change_frac'])} against {format_duration(history['before_ns'])} of the "
        f"{format_number_of(history['before'], 'run')} before."
    )
