"""Sentences on the requests of a run that infers."""

from __future__ import annotations

from profiler_server.analysis.steps.requests import Requests
from profiler_server.format import format_duration, format_number_of

_LATENCIES = ("p50", "p90", "p95", "p99")


def format_calls(mean: float) -> str:
    """Return a mean number of calls with its noun: `1 call`, `11.4 calls`."""
    return f"{mean:.3g} {'call' if mean == 1 else 'calls'}"


def describe_requests(found: Requests) -> str:
    """Return a sentence on what the figures of the requests cover."""
    parts = [f"{format_number_of(found.count, 'request')} on {format_number_of(found.threads, 'thread')}"]
    parts.append(f"at most {found.most_at_once:,} at once" if found.most_at_once > 1 else "one after the other")
    if found.failed:
        parts.append(f"{found.failed:,} ended by an exception")
    text = ", ".join(parts)
    left_out = (
        f" {found.left_out:,} left out: a detailed window held them up, or they did not end." if found.left_out else ""
    )
    return f"{text}.{left_out}"


def say_latency(found: Requests) -> str:
    """Return the latency, the rate and the calls of requests in one clause."""
    named = found.duration_ns.list_percentiles() if found.duration_ns is not None else ()
    ranked = [f"{name} {format_duration(value)}" for name, value in named if value is not None and name in _LATENCIES]
    calls = [f"{format_calls(found.calls_mean)} each"] if found.calls_max else []
    return ", ".join((*ranked, f"{found.per_s:.4g} a second", *calls))
