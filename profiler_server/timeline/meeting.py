"""A collective as slices on the timelines of the ranks that called it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from collector.format.run import Run
from collector.format.schema.errors import RunError
from profiler_server.analysis.ranks.one_clock import Arrival, Meeting, find_meeting
from profiler_server.analysis.ranks.ranks import RankSummary, summarize_some
from profiler_server.derive.stamps import FEW_RANKS
from profiler_server.timeline.cache import find_timelines
from profiler_server.timeline.store import Place, Timeline
from profiler_server.timeline.view import view_place

MOST_LISTED = 32


def summarize_asked(run: Run, shown: Sequence[int]) -> tuple[RankSummary, ...]:
    """Return the ranks to search for a collective: all ranks, or the shown ranks of a very large run."""
    return summarize_some(run, run.ranks if len(run.ranks) <= FEW_RANKS else shown)


def find_meeting_at(run: Run, timeline: Timeline, start: int, length: int, shown: Sequence[int]) -> Meeting | None:
    """Return the collective of this rank's call that begins at `start`, since the origin, and lasts `length` ns; or
    None.
    """
    rank = timeline.rank.rank
    ranks = summarize_asked(run, tuple(dict.fromkeys((rank, *shown))))
    return find_meeting(ranks, rank, start + timeline.index.origin_ns, length)


def view_meeting(run: Run, meeting: Meeting, shown: Collection[int]) -> list[dict[str, Any]]:
    """Return the arrivals at a collective in order: shown ranks with their slice, and some other ranks."""
    ends = {meeting.arrivals[0].rank, meeting.arrivals[-1].rank, *shown}
    listed = [entry for place, entry in enumerate(meeting.arrivals) if entry.rank in ends or place < MOST_LISTED]
    return [
        {
            "rank": entry.rank,
            "late": entry.late_ns,
            "waited": meeting.spread_ns - entry.late_ns,
            "length": entry.duration_ns,
            "place": _view_place(run, entry) if entry.rank in shown else None,
        }
        for entry in listed
    ]


def _view_place(run: Run, entry: Arrival) -> dict[str, Any] | None:
    try:
        rank = run.rank(entry.rank)
        if not find_timelines().find_built(rank):
            return None
        place = find_timelines().ask(rank, lambda timeline: find_slice_at(timeline, entry.start_ns, entry.duration_ns))
    except RunError:
        return None
    return view_place(place) if place is not None else None


def find_slice_at(timeline: Timeline, start_ns: int, duration_ns: int) -> Place | None:
    """Return a slice with exactly this start (since the run's epoch) and duration, or None.

    Of several such slices, slices of communication come first, then recorded slices before derived ones.
    """
    start, names = start_ns - timeline.index.origin_ns, timeline.names
    found: list[Place] = []
    for lane in range(len(timeline.index.lanes)):
        first, last = timeline.raw.find_start(lane, start), timeline.raw.find_start(lane, start + 1)
        bins = timeline.raw.cut(lane, first, last)
        rows = np.flatnonzero(bins.end - bins.start == duration_ns)
        found += [timeline.place(int(timeline.lane_offsets[lane]) + first + int(row)) for row in rows[:1]]

    def rate(place: Place) -> tuple[bool, bool]:
        return names.category[place.name] != "communication", place.sid >= timeline.index.table_rows

    return min(found, key=rate, default=None)
