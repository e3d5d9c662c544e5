"""What the viewer gets, as plain JSON: metadata, search results, details, area summaries. Times since the origin."""

from __future__ import annotations

import re
from itertools import groupby
from typing import Any

from collector.format.phases import PHASES
from profiler_server.analysis.ranks.one_clock import RankClock
from profiler_server.format import shorten_middle
from profiler_server.timeline.area import AreaSummary
from profiler_server.timeline.build import TILE_BITS
from profiler_server.timeline.details import SliceDetails
from profiler_server.timeline.links import Link
from profiler_server.timeline.search import SearchResult
from profiler_server.timeline.sources import Track
from profiler_server.timeline.store import Place, Timeline

SHOWN_NAME = 400
"""Longer names are shortened in the middle in the dictionary; details show them whole up to `WHOLE_NAME`."""
WHOLE_NAME = 20_000

Json = dict[str, Any]
_NUMBERED = re.compile(r"(.*?)(0|[1-9][0-9]{0,14})", re.DOTALL)
_SHORTEST_RUN = 3


def view_meta(timeline: Timeline) -> Json:
    """Return what the viewer needs before it asks for tiles: levels, tracks with their lanes, the dictionary."""
    index = timeline.index
    names = timeline.names
    categories = sorted(set(names.category))
    numbers = {category: number for number, category in enumerate(categories)}
    return {
        "rank": timeline.rank.rank,
        "stamp": timeline.stamp,
        "origin": index.origin_ns,
        "span": timeline.span_ns,
        "slices": index.slices,
        "rawLevel": index.raw_level,
        "topLevel": index.top_level,
        "tileBits": TILE_BITS,
        "tracks": _view_tracks(timeline),
        "counters": [_view_track(track) for track in index.counters],
        "names": _pack_names([shorten_middle(name, SHOWN_NAME) for name in names.name]),
        "categories": categories,
        "phaseColors": {phase.label: phase.color for phase in PHASES},
        "nameCategories": [[number, len(list(run))] for number, run in groupby(numbers[c] for c in names.category)],
    }


def _pack_names(names: list[str]) -> list[str | list[str | int]]:
    """Pack runs such as "Step 7", "Step 8" into prefix, first number and how many: a long run has thousands."""
    packed: list[str | list[str | int]] = []
    for (prefix, _), run in groupby(enumerate(names), key=_split_number):
        found = [name for _, name in run]
        counts = len(found) >= _SHORTEST_RUN and prefix is not None
        packed += [[prefix, int(found[0][len(prefix) :]), len(found)]] if counts and prefix is not None else found
    return packed


def _split_number(numbered: tuple[int, str]) -> tuple[str | None, int]:
    """Return what is equal for names that count up from one to the next; nothing else is packed."""
    place, name = numbered
    found = _NUMBERED.fullmatch(name)
    return (found[1], int(found[2]) - place) if found else (None, 0)


def _view_tracks(timeline: Timeline) -> list[Json]:
    first: dict[int, int] = {}
    sizes: dict[int, int] = {}
    for number, lane in enumerate(timeline.index.lanes):
        first.setdefault(lane.track, number)
        sizes[lane.track] = sizes.get(lane.track, 0) + 1
    tracks = timeline.index.tracks
    return [{**_view_track(t), "firstLane": first[t.id], "lanes": sizes[t.id]} for t in tracks]


def _view_track(track: Track) -> Json:
    return {
        "name": shorten_middle(track.name, SHOWN_NAME),
        "kind": track.kind,
        "group": shorten_middle(track.group, SHOWN_NAME),
        "unit": track.unit,
    }


def view_clock(clock: RankClock) -> Json:
    """Return how the times of a rank are put on the clock of the first."""
    return {
        "rank": clock.rank,
        "known": clock.known,
        "anchor": clock.anchor_ns,
        "shift": clock.shift_ns,
        "drift": clock.drift,
        "apart": clock.apart_ns,
        "calls": clock.calls,
    }


def view_search(result: SearchResult) -> Json:
    return {
        "count": result.count,
        "names": result.names,
        "number": result.number,
        "hit": view_place(result.hit) if result.hit else None,
        "top": [
            {
                "name": shorten_middle(match.name, SHOWN_NAME),
                "category": match.category,
                "count": match.count,
                "total": match.total_ns,
            }
            for match in result.top
        ],
    }


def view_place(place: Place) -> Json:
    return {
        "id": place.sid,
        "place": place.position,
        "lane": place.lane,
        "start": place.start,
        "length": place.end - place.start,
        "name": place.name,
    }


def view_details(found: SliceDetails) -> Json:
    """Return everything about one slice."""
    return {
        **view_place(found.place),
        "whole": found.name[:WHOLE_NAME],
        "category": found.category,
        "step": found.step,
        "args": {key: _view_value(value) for key, value in found.args.items()},
        "kind": {"count": found.kind_count, "mean": found.kind_mean_ns, "longest": found.kind_longest_ns},
        "links": [_view_link(link) for link in found.links],
        "linksLeftOut": found.links_left_out,
    }


def _view_link(link: Link) -> Json:
    return {
        **view_place(link.place),
        "relation": link.relation,
        "whole": shorten_middle(link.name, SHOWN_NAME),
        "category": link.category,
    }


def _view_value(value: Any) -> Any:
    return value[:WHOLE_NAME] if isinstance(value, str) else value


def view_area(summary: AreaSummary) -> Json:
    return {
        "slices": summary.slices,
        "total": summary.total_ns,
        "names": summary.names,
        "leftOut": summary.left_out,
        "rows": [
            {
                "name": shorten_middle(row.name, SHOWN_NAME),
                "category": row.category,
                "count": row.count,
                "total": row.total_ns,
                "mean": row.mean_ns,
                "longest": row.longest_ns,
            }
            for row in summary.rows
        ],
    }
