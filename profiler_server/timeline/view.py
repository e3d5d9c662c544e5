"""Data for the viewer as plain JSON: metadata, search results, details of slices. Times are in ns since `origin_ns`."""

from __future__ import annotations

import re
from dataclasses import is_dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np

from collector.format.phases import PHASES
from collector.format.run import RankRun
from collector.format.schema.errors import read_or
from collector.format.steps import is_kind, read_integers
from profiler_server.analysis.ranks.one_clock import RankClock
from profiler_server.analysis.replay.critical import CriticalPath
from profiler_server.format import shorten_middle
from profiler_server.timeline.build import TILE_BITS
from profiler_server.timeline.details import Link, SliceDetails
from profiler_server.timeline.sources import Track
from profiler_server.timeline.store import Place, Timeline

SHOWN_NAME = 400
"""The length above which a name in the dictionary is shortened in the middle. Details show up to `WHOLE_NAME`
characters."""
WHOLE_NAME = 20_000

Json = dict[str, Any]
_NUMBERED = re.compile(r"(.*?)(0|[1-9][0-9]{0,14})", re.DOTALL)
_UNDERSCORE = re.compile(r"_(\w)")
_SHORTEST_RUN = 3


def view_meta(timeline: Timeline) -> Json:
    """Return what the viewer needs before its first tile: levels, tracks with lanes, and the dictionary of names."""
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
    """Return the names as text. A run such as "Step 7", "Step 8" becomes a prefix, a first number and a count.

    A long training has thousands of such names.
    """
    packed: list[str | list[str | int]] = []
    for (prefix, _), run in groupby(enumerate(names), key=_split_number):
        found = [name for _, name in run]
        counts = len(found) >= _SHORTEST_RUN and prefix is not None
        packed += [[prefix, int(found[0][len(prefix) :]), len(found)]] if counts and prefix is not None else found
    return packed


def _split_number(numbered: tuple[int, str]) -> tuple[str | None, int]:
    place, name = numbered
    found = _NUMBERED.fullmatch(name)
    return (found[1], int(found[2]) - place) if found else (None, 0)


def _view_tracks(timeline: Timeline) -> list[Json]:
    first: dict[int, int] = {}
    sizes: dict[int, int] = {}
    for number, lane in enumerate(timeline.index.lanes):
        first.setdefault(lane.track, number)
        sizes[lane.track] = sizes.get(lane.track, 0) + 1
    last = read_or(None, find_last_phased, timeline.rank)
    tracks = [
        replace(track, name=f"{track.name} (to step {last:,})") if track.kind == "phase" and last is not None else track
        for track in timeline.index.tracks
    ]
    return [{**_view_track(t), "firstLane": first[t.id], "lanes": sizes[t.id]} for t in tracks]


def find_last_phased(rank: RankRun) -> int | None:
    """Return the number of the last step before most steps have no recorded phases; None if phases go to the end."""
    if rank.status("phases").state != "there" or rank.status("steps").state != "there":
        return None
    every = rank.table("steps", ("step", "kind"))
    steps = read_integers(every.filter(is_kind(every, "train")), "step")
    without = np.setdiff1d(steps, read_integers(rank.table("phases", ("step",)), "step"))
    if not len(without) or 2 * len(without) < int((steps >= without[0]).sum()) or without[0] <= steps.min():
        return None
    return int(without[0]) - 1


def _view_track(track: Track) -> Json:
    return {
        "name": shorten_middle(track.name, SHOWN_NAME),
        "kind": track.kind,
        "group": shorten_middle(track.group, SHOWN_NAME),
        "unit": track.unit,
    }


def view_record(record: Any) -> Any:
    """Return a value for JSON. A dataclass becomes a dict with the viewer's names, such as `leftOut` and `total`."""
    if isinstance(record, Place):
        return view_place(record)
    if isinstance(record, str):
        return shorten_middle(record, SHOWN_NAME)
    if isinstance(record, tuple):
        return [view_record(entry) for entry in record]
    if not is_dataclass(record):
        return record
    names = {_UNDERSCORE.sub(lambda found: found[1].upper(), name.removesuffix("_ns")): name for name in vars(record)}
    return {shown: view_record(getattr(record, name)) for shown, name in names.items()}


def view_clock(clock: RankClock) -> Json:
    return {name: value for name, value in view_record(clock).items() if name != "lack"}


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
    return {
        **view_place(found.place),
        "whole": found.name[:WHOLE_NAME],
        "category": found.category,
        "step": found.step,
        "args": {key: value[:WHOLE_NAME] if isinstance(value, str) else value for key, value in found.args.items()},
        "kind": {"count": found.kind_count, "mean": found.kind_mean_ns, "longest": found.kind_longest_ns},
        "links": [_view_link(link) for link in found.links],
        "linksLeftOut": found.links_left_out,
    }


def _view_link(link: Link) -> Json:
    shown = shorten_middle(link.name, SHOWN_NAME)
    return {**view_place(link.place), "relation": link.relation, "whole": shown, "category": link.category}


def view_path(timeline: Timeline, path: CriticalPath | None) -> Json:
    """Return the pieces of a critical path as columns, with times since the origin. The lane is -1 if unknown."""
    if path is None:
        return {"starts": [], "ends": [], "lanes": []}
    lanes: dict[tuple[int, int], int] = {}
    for number, lane in enumerate(timeline.index.lanes):
        lanes.setdefault((lane.track, lane.depth), number)
    origin = timeline.index.origin_ns
    places = zip(path.track.tolist(), path.depth.tolist(), strict=True)
    return {
        "starts": (path.start_ns - origin).tolist(),
        "ends": (path.end_ns - origin).tolist(),
        "lanes": [lanes.get(place, -1) for place in places],
    }
