"""All details of one slice: its row, the mean over all slices of the same name, and its links to other slices.

A link joins a host call and its kernel, a forward and its backward operator, or a slice and the slice around it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from collector.format import parts
from collector.format.stored_files import arrow_schema, open_file
from profiler_server.timeline.derived import read_derived_row
from profiler_server.timeline.sources import naming_damage
from profiler_server.timeline.store import Place, Timeline

MOST_LINKS = 64
_MOST_ROWS = 4096
_COLUMNS = ["id", "track", "start_ns", "duration_ns", "name", "category"]
_BACKWARD = re.compile(r"Backward|_backward|^autograd::")
_CALLING = ("operator", "annotation", "module", "python")
_STRETCH_NS = 60_000_000_000


@dataclass(frozen=True)
class Link:
    """A link to another slice: what this other slice is to the described one, and its name, category and place."""

    relation: str
    name: str
    category: str
    place: Place


class RowGroup(NamedTuple):
    """A row group of a table: its file, its first row in the table, and its number of rows."""

    path: Path
    file: pq.ParquetFile
    number: int
    first: int
    rows: int


def list_groups(timeline: Timeline, table: str) -> Iterator[RowGroup]:
    first = 0
    for path in parts.find_files(timeline.rank.folder, table):
        with naming_damage(path):
            file = open_file(path, table, arrow_schema(table).names)
        for group in range(file.num_row_groups):
            rows = file.metadata.row_group(group).num_rows
            yield RowGroup(path, file, group, first, rows)
            first += rows


def find_links(timeline: Timeline, row: dict[str, Any]) -> Iterator[Link]:
    """Yield the links of a row of the table `slices`."""
    for relation, column, value in (("launched by", "id", "launched_by"), ("inside of", "id", "parent")):
        if row.get(value) is not None:
            yield from _locate(timeline, relation, _find_rows(timeline, column, row[value], row[value]), row)
    yield from _locate(timeline, "launches", _find_rows(timeline, "launched_by", row["id"], row["id"]), row)
    if row["category"] in _CALLING and row["duration_ns"] <= _STRETCH_NS:
        yield from _locate(timeline, "launches", _find_launched_inside(timeline, row), row)
    if row.get("sequence") is not None and row["sequence"] >= 0:
        yield from _find_counterpart(timeline, row)


def _locate(timeline: Timeline, relation: str, rows: list[dict[str, Any]], own: dict[str, Any]) -> Iterator[Link]:
    names = timeline.names
    for row in rows:
        place = timeline.find_place(row["track"], row["start_ns"], row["row"])
        if place is not None and row["id"] != own["id"]:
            yield Link(relation, names.name[place.name], names.category[place.name], place)


def _find_counterpart(timeline: Timeline, own: dict[str, Any]) -> Iterator[Link]:
    """Yield a link from a forward operator to its backward operator, or from a backward operator to its forward
    operator.

    Both have the sequence number of the autograd node. Operators that make no node have the number of the previous
    node. So the node's maker is the last forward operator with the number.
    """
    rows = _find_rows(timeline, "sequence", own["sequence"], own["sequence"])
    backward = [row for row in rows if _BACKWARD.search(row["name"])]
    forward = [row for row in rows if not _BACKWARD.search(row["name"])]
    first = min((row["start_ns"] for row in backward), default=None)
    before = [row for row in forward if first is not None and row["start_ns"] < first]
    if not before or first is None:
        return
    maker = max(before, key=lambda row: row["start_ns"])
    if _BACKWARD.search(own["name"]):
        yield from _locate(timeline, "backward of", [maker], own)
    elif own["start_ns"] <= maker["start_ns"] < own["start_ns"] + max(own["duration_ns"], 1):
        found = min(backward, key=lambda row: row["start_ns"])
        yield from _locate(timeline, "backward is", [found], own)


def _find_launched_inside(timeline: Timeline, own: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the device work launched by runtime calls inside a host slice, without work that the slice itself
    launched.
    """
    begin, end = own["start_ns"], own["start_ns"] + own["duration_ns"]
    calls = [
        row
        for row in _find_rows(timeline, "start_ns", begin, end)
        if row["track"] == own["track"] and row["category"] == "runtime" and row["id"] != own["id"]
    ]
    ids = [row["id"] for row in calls]
    if not ids:
        return []
    return _find_rows(timeline, "launched_by", min(ids), max(ids), frozenset(ids))


def _find_rows(
    timeline: Timeline, column: str, least: int, most: int, among: frozenset[int] | None = None
) -> list[dict[str, Any]]:
    """Return up to `_MOST_ROWS` rows of `slices`, each with its row number.

    Their value of `column` is from `least` to `most`. If `among` is given, the value must also be in it.
    """
    found: list[dict[str, Any]] = []
    for _, file, group, first, _ in list_groups(timeline, "slices"):
        if column not in file.schema_arrow.names or not _may_hold(file, group, column, least, most):
            continue
        values = file.read_row_group(group, columns=[column], use_threads=False)[column]
        fits = pc.and_(pc.greater_equal(values, least), pc.less_equal(values, most))
        if among is not None:
            fits = pc.and_(fits, pc.is_in(values, value_set=pa.array(sorted(among), values.type)))
        rows = pc.indices_nonzero(fits)[: _MOST_ROWS - len(found)]
        if len(rows):
            table = file.read_row_group(group, columns=_COLUMNS, use_threads=False).take(rows)
            numbered = zip(rows.to_pylist(), table.to_pylist(), strict=True)
            found += [row | {"row": first + at} for at, row in numbered]
        if len(found) >= _MOST_ROWS:
            break
    return found


def _may_hold(file: pq.ParquetFile, group: int, column: str, least: int, most: int) -> bool:
    place = file.schema_arrow.names.index(column)
    statistics = file.metadata.row_group(group).column(place).statistics
    if statistics is None or not statistics.has_min_max:
        return statistics is None or statistics.null_count != statistics.num_values
    return bool(statistics.min <= most and least <= statistics.max)


_MOST_ARGS = 60
_SHOWN_APART = {"id", "track", "depth", "start_ns", "duration_ns", "name", "category", "step", "args", "parent"}


@dataclass(frozen=True)
class SliceDetails:
    """One slice. `kind_*` are over all slices of its name and category. `links_left_out` is the number of unlisted
    links.
    """

    place: Place
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
    args = dict(list(args.items())[:_MOST_ARGS])
    name, category, count, _, mean_ns, longest_ns = timeline.names.describe(place.name)
    links = tuple(found[:MOST_LINKS]), max(len(found) - MOST_LINKS, 0)
    return SliceDetails(place, name, category, row["step"], args, count, mean_ns, longest_ns, *links)


def _read_origin(timeline: Timeline, row: dict[str, Any]) -> dict[str, Any]:
    """Return the row of another table from which a derived slice was made, without empty columns."""
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
    """Return one row of a table by its number over all files; None without such a row. Only one row group is decoded."""
    for path, file, group, first, rows in list_groups(timeline, table):
        if first <= number < first + rows:
            with naming_damage(path):
                found: dict[str, Any] = (
                    file.read_row_group(group, use_threads=False).slice(number - first, 1).to_pylist()[0]
                )
            return found
    return None
