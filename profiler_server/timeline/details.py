"""Everything that is known of one slice: its row, its kind's mean, and what it is linked with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from profiler_server.timeline.derived_file import read_derived_row
from profiler_server.timeline.links import MOST_LINKS, Link, find_links, list_groups
from profiler_server.timeline.sources import naming_damage
from profiler_server.timeline.store import Place, Timeline

_MOST_ARGS = 60
_SHOWN_APART = {"id", "track", "depth", "start_ns", "duration_ns", "name", "category", "step", "args", "parent"}


@dataclass(frozen=True)
class SliceDetails:
    """One slice. `kind_*` are over all slices of its name and category; `links_left_out` counts links not listed."""

    place: Place
    track: int
    name: str
    category: str
    step: int | None
    args: dict[str, Any]
    kind_count: int
    kind_mean_ns: float
    kind_longest_ns: int
    links: tuple[Link, ...]
    links_left_out: int


def describe_slice(timeline: Timeline, sid: int) -> SliceDetails | None:
    """Return what is known of a slice, None if there is none of that number. Raises RunError."""
    derived = sid >= timeline.index.table_rows
    own_number = sid - timeline.index.table_rows
    row = (
        read_derived_row(timeline.folder, timeline.index.derived_rows, own_number)
        if derived
        else _read_row(timeline, "slices", sid)
    )
    place = timeline.find_place(row["track"], row["start_ns"], sid) if row else None
    if row is None or place is None:
        return None
    found = [] if derived else list(find_links(timeline, row))
    args = _read_origin(timeline, row) if derived else _collect_args(row)
    names = timeline.names
    count = int(names.count[place.name])
    return SliceDetails(
        place,
        row["track"],
        names.name[place.name],
        names.category[place.name],
        row["step"],
        dict(list(args.items())[:_MOST_ARGS]),
        count,
        float(names.total_ns[place.name] / max(count, 1)),
        int(names.longest_ns[place.name]),
        tuple(found[:MOST_LINKS]),
        max(len(found) - MOST_LINKS, 0),
    )


def _read_origin(timeline: Timeline, row: dict[str, Any]) -> dict[str, Any]:
    """Return the columns of the row that a derived slice stands for, without those that say nothing."""
    if not row["table"]:
        return {}
    found = _read_row(timeline, row["table"], row["row"]) or {}
    return {key: value for key, value in found.items() if key not in _SHOWN_APART and value not in (None, "")}


def _collect_args(row: dict[str, Any]) -> dict[str, Any]:
    hidden = {*_SHOWN_APART, "launched_by"}
    found = {key: value for key, value in row.items() if key not in hidden and value is not None}
    if row.get("args"):
        try:
            told = msgspec.json.decode(row["args"])
        except msgspec.DecodeError:
            told = row["args"]
        found.update(told if isinstance(told, dict) else {"args": told})
    return found


def _read_row(timeline: Timeline, table: str, number: int) -> dict[str, Any] | None:
    """Read one row by its number over the files of a table: one row group is decoded, not the table."""
    for file, group, first, rows in list_groups(timeline, table):
        if first <= number < first + rows:
            with naming_damage(timeline.rank.folder / table):
                found: dict[str, Any] = (
                    file.read_row_group(group, use_threads=False).slice(number - first, 1).to_pylist()[0]
                )
            return found
    return None
