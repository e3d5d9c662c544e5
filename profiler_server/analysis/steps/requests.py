"""Summarise requests, and the calls of models inside of them and on other threads, from the table `ranges`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from collector.format.intervals import Ints, Mask
from collector.format.run import RankRun
from collector.format.schema.wording import CALL_RANGE, REQUEST_RANGE
from collector.format.steps import Distribution, read_integers, summarize_durations
from profiler_server.analysis.tables import find_places, find_rows, is_text
from profiler_server.derive.derived import derived


@dataclass(frozen=True)
class Requests:
    """The requests of a rank. `duration_ns` is the distribution of their latencies, `per_s` their number per second from
    the first start to the last end. `most_at_once` is the most that were open together.

    `failed` of them ended by an exception; these count. `left_out` were open while Stepscope held the thread to open or
    save a detailed window, or were not closed; they are in `count` only. `calls_mean` and `calls_max` are calls of models
    per request, `call_ns` is the distribution of these calls.
    """

    count: int
    failed: int
    left_out: int
    duration_ns: Distribution | None
    per_s: float
    most_at_once: int
    threads: int
    calls_mean: float
    calls_max: int
    call_ns: Distribution | None


@dataclass(frozen=True)
class OtherCalls:
    """Calls of models on threads other than the recorded one; no row of `steps` holds them."""

    count: int
    duration_ns: Distribution | None


_COLUMNS = ("id", "parent", "name", "thread_id", "start_ns", "duration_ns", "failed", "training", "left_open")
_DEEPEST = 64


@derived()
def summarize_requests(rank: RankRun) -> Requests | None:
    """Return the figures of the requests of a rank; None without a request. A request inside of another counts for
    itself, and its calls count for the outer one, too.
    """
    rows = find_rows(rank, "ranges", _COLUMNS)
    is_request = _is_named(rows, REQUEST_RANGE)
    chosen = rows.filter(pa.array(is_request))
    if not chosen.num_rows:
        return None
    start, duration = (read_integers(chosen, name) for name in ("start_ns", "duration_ns"))
    ends = start + duration
    is_open = read_integers(chosen, "left_open", 0) > 0
    kept = ~is_open & ~_meets_window(rank, start, ends)
    calls, call_rows = _count_calls(rows, is_request, kept)
    span_s = (int(ends.max()) - int(start.min())) / 1e9
    return Requests(
        count=len(start),
        failed=int((read_integers(chosen, "failed") > 0).sum()),
        left_out=int((~kept).sum()),
        duration_ns=summarize_durations(duration[kept]),
        per_s=len(start) / span_s if span_s else 0.0,
        most_at_once=_count_most(start, ends),
        threads=len(np.unique(read_integers(chosen, "thread_id"))),
        calls_mean=float(calls[kept].mean()) if kept.any() else 0.0,
        calls_max=int(calls[kept].max()) if kept.any() else 0,
        call_ns=summarize_durations(call_rows),
    )


@derived()
def summarize_other_calls(rank: RankRun) -> OtherCalls | None:
    """Return the calls of models on threads other than the recorded one; None if there were none."""
    rows = find_rows(rank, "ranges", _COLUMNS)
    chosen = _is_named(rows, CALL_RANGE) & (read_integers(rows, "training", 1) == 0)
    durations = read_integers(rows, "duration_ns")[chosen]
    return OtherCalls(len(durations), summarize_durations(durations)) if len(durations) else None


def _is_named(rows: pa.Table, name: str) -> Mask:
    found: Mask = np.asarray(is_text(rows, "name", name).to_numpy(zero_copy_only=False), np.bool_)
    return found


def _meets_window(rank: RankRun, start: Ints, ends: Ints) -> Mask:
    """Return a mask of the requests that were open when a detailed window opened or was saved, or while it ran."""
    met = np.zeros(len(start), np.bool_)
    for window in rank.manifest.windows:
        met |= (start <= window.end_ns) & (ends >= window.start_ns)
    return met


def _count_calls(rows: pa.Table, is_request: Mask, kept: Mask) -> tuple[Ints, Ints]:
    above = find_places(read_integers(rows, "id"), read_integers(rows, "parent", -1))
    places = np.flatnonzero(is_request)
    number = np.full(len(above), -1, np.int64)
    number[places] = np.arange(len(places))
    calls = np.flatnonzero(_is_named(rows, CALL_RANGE))
    counts, chosen = np.zeros(len(places), np.int64), np.zeros(len(above), np.bool_)
    at = calls
    for _ in range(_DEEPEST):
        at = above[at]
        at, calls = at[at >= 0], calls[at >= 0]
        inside = number[at] >= 0
        np.add.at(counts, number[at[inside]], 1)
        chosen[calls[inside][kept[number[at[inside]]]]] = True
    durations: Ints = read_integers(rows, "duration_ns")[chosen]
    return counts, durations


def _count_most(start: Ints, ends: Ints) -> int:
    times = np.concatenate([start, ends])
    change = np.concatenate([np.ones(len(start), np.int64), -np.ones(len(ends), np.int64)])
    order = np.lexsort((change, times))
    return int(np.cumsum(change[order]).max())
