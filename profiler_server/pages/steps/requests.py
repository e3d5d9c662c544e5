"""The part of the Step trace page on requests, and on calls of models on other threads."""

from __future__ import annotations

from dataclasses import dataclass

from collector.format.run import RankRun
from collector.format.schema.wording import format_number_of
from collector.format.steps import Distribution
from profiler_server.analysis.steps.requests import summarize_other_calls, summarize_requests
from profiler_server.diagnosis.request_sentences import describe_requests
from profiler_server.format import format_duration
from profiler_server.widgets import Stat

_SHOWN = ("p50", "p90", "p95", "p99")


@dataclass(frozen=True)
class RequestsView:
    """The latencies of requests and of the calls inside of them. `elsewhere` is a sentence on calls on other threads
    outside of requests, "" if there were none; without a request, `figures` is empty.
    """

    sentence: str
    figures: tuple[Stat, ...]
    calls: tuple[Stat, ...]
    elsewhere: str


def view_requests(rank: RankRun) -> RequestsView | None:
    """Return the requests of a rank, and its calls on other threads; None if it has neither."""
    found, others = summarize_requests(rank), summarize_other_calls(rank)
    if found is None and others is None:
        return None
    elsewhere = ""
    if others is not None and others.duration_ns is not None:
        elsewhere = (
            f"{format_number_of(others.count, 'call')} of models ran on other threads than the recorded one, half of them "
            f"in at most {format_duration(others.duration_ns.p50)}. The figures below leave them out."
        )
    if found is None:
        return RequestsView("", (), (), elsewhere)
    rate = Stat("throughput", f"{found.per_s:.4g} a second", "from the first start to the last end")
    per = Stat("calls a request", f"{found.calls_mean:.3g}", f"at most {found.calls_max:,}")
    return RequestsView(
        describe_requests(found),
        (Stat("requests", f"{found.count:,}"), *_list(found.duration_ns), rate),
        (per, *_list(found.call_ns)) if found.calls_max else (),
        elsewhere,
    )


def _list(times: Distribution | None) -> tuple[Stat, ...]:
    if times is None:
        return ()
    named = [("mean", times.mean), *((name, getattr(times, name)) for name in _SHOWN), ("max", float(times.max))]
    return tuple(Stat(name, format_duration(value)) for name, value in named if value is not None)
