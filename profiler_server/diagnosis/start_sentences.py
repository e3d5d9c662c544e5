"""Sentences on the time to the first step."""

from __future__ import annotations

from profiler_server.diagnosis.limits.steps import LONG_START_UP_NS, START_UP_FRAC, START_UP_NS
from profiler_server.facts.start_up import StartPart, StartUp
from profiler_server.format import fill_in, format_duration, format_number_of, format_shares

_MOST_PARTS = 4


def is_worth_a_bar(start: StartUp) -> bool:
    return start.total_ns >= LONG_START_UP_NS or start.total_ns >= max(START_UP_NS, START_UP_FRAC * start.recorded_ns)


def say_start_up(start: StartUp) -> str:
    """Return the time to the end of the first step with its largest parts, in one line."""
    shares = format_shares([part.duration_ns / start.total_ns for part in start.parts])
    ordered = sorted(zip(start.parts, shares, strict=True), key=lambda entry: -entry[0].duration_ns)
    texts = [f"{_name(part)} {format_duration(part.duration_ns)} ({share})" for part, share in ordered[:_MOST_PARTS]]
    return f"{format_duration(start.total_ns)} {say_since(start)}: {', '.join(texts)}"


def say_since(start: StartUp) -> str:
    begin = "the start of the process" if start.is_process else "the begin of the recording"
    return f"from {begin} to the end of the first {start.noun}"


def say_basis(start: StartUp) -> str:
    """Return how sure the parts are."""
    if not start.samples:
        return "No stack was sampled, so only what was measured has a name."
    doubt_ns = max(max(part.high_ns - part.duration_ns, part.duration_ns - part.low_ns) for part in start.parts)
    sampled = f"The parts come from {format_number_of(start.samples, 'sampled stack')}"
    return f"{sampled}, so each may be off by {format_duration(doubt_ns)}." if doubt_ns > 0 else f"{sampled}."


def _name(part: StartPart) -> str:
    known = fill_in(part.label)
    label = known[:1].lower() + known[1:] if part.cause != "recording" else known
    return f"{label} at {part.place}" if part.place and part.cause == "script" else label
