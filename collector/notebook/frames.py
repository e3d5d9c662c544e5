"""Build one table of all recorded spans of a rank: operators, kernels, steps, phases, ranges, collectives, stages."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from collector.format import timeline_rows
from collector.format.parts import find_files
from collector.format.schema.errors import OptionError, TableMissingError
from collector.format.schema.wording import suggest_nearest
from collector.format.steps import is_kind
from collector.format.timeline_rows import keep_workers
from collector.format.words import SLICE_CATEGORIES

if TYPE_CHECKING:
    from collector.format.run import RankRun

ACTIVITIES = ("cpu", "device")
CATEGORIES = (*SLICE_CATEGORIES, "range")
SCHEMA = pa.schema(
    [
        ("trace_id", pa.string()),
        ("span_id", pa.int64()),
        ("parent_span_id", pa.int64()),
        ("start", pa.int64()),
        ("end", pa.int64()),
        ("dur", pa.int64()),
        ("cat", pa.string()),
        ("name", pa.string()),
        ("process", pa.string()),
        ("thread", pa.string()),
        ("device", pa.int32()),
        ("stream", pa.int64()),
        ("step", pa.int64()),
        ("operator_index", pa.int64()),
        ("launched_by", pa.int64()),
    ]
)
"""Times are in ns since the run's epoch. `operator_index` numbers the host operators by start, from 0."""
OPTIONAL = frozenset({"parent_span_id", "device", "stream", "step", "operator_index", "launched_by"})
"""Integer columns that are null for many spans."""


@dataclass(frozen=True)
class SpanChoice:
    """A selection of spans: `categories` (None for all), `activities` (host work, device work or both), and `steps`
    (first and last, both included; None for all).

    `workers` are the numbers of the DataLoader workers to include, None for all; the workers keep their numbers.
    """

    categories: tuple[str, ...] | None = None
    activities: tuple[str, ...] = ACTIVITIES
    steps: tuple[int, int] | None = None
    workers: tuple[int, ...] | None = None


def parse_choice(categories: Any, activities: Any, steps: Any) -> SpanChoice:
    """Return the checked selection of spans, from the arguments of `Run.spans`. OptionError names an unknown value."""
    first = last = None
    if steps is not None:
        try:
            first, last = (steps, steps) if isinstance(steps, int) else steps
        except (TypeError, ValueError):
            raise OptionError(f"steps takes a number or (first, last), not {steps!r}") from None
    return SpanChoice(
        None if categories is None else _check("category", categories, CATEGORIES),
        _check("activity", ACTIVITIES if activities is None else activities, ACTIVITIES),
        None if first is None or last is None else (int(first), int(last)),
    )


def _check(what: str, given: Any, known: Sequence[str]) -> tuple[str, ...]:
    names = (given,) if isinstance(given, str) else tuple(given)
    for name in names:
        if name not in known:
            hint = suggest_nearest(str(name), known, f"choose from {', '.join(known)}")
            raise OptionError(f"there is no {what} {name!r}; {hint}")
    return names


def build_spans(rank: RankRun, trace_id: str, choice: SpanChoice) -> pa.Table:
    """Return the chosen spans of a rank with the columns of SCHEMA, sorted by start. `trace_id` is the same text in all
    rows. A missing table adds none; for others this raises as `RankRun.table`."""
    pieces: list[pa.Table] = []
    first = 0
    stages = partial(_read_stages, workers=choice.workers)
    for read in (_read_slices, _read_steps, _read_phases, _read_ranges, _read_collectives, stages):
        columns = read(rank, first)
        if columns is not None:
            table = _fill(columns, trace_id)
            first = max(first, int(pc.max(table["span_id"]).as_py()) + 1)
            pieces.append(table)
    spans = pa.concat_tables(pieces) if pieces else SCHEMA.empty_table()
    return _number_operators(_choose(spans, choice).sort_by([("start", "ascending"), ("dur", "descending")]))


def _fill(columns: dict[str, Any], trace_id: str) -> pa.Table:
    size = len(columns["span_id"])
    columns = {"trace_id": pa.array([trace_id] * size), **columns}
    columns["end"] = pc.add(columns["start"], columns["dur"])
    arrays = []
    for field in SCHEMA:
        value = columns.get(field.name)
        arrays.append(pa.nulls(size, field.type) if value is None else _cast(value, field.type))
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def _cast(value: Any, kind: pa.DataType) -> Any:
    array = value if isinstance(value, (pa.Array, pa.ChunkedArray)) else pa.array(value)
    return array.cast(kind)


def _read(rank: RankRun, table: str, columns: Sequence[str]) -> pa.Table | None:
    try:
        rows = rank.table(table, columns)
    except TableMissingError:
        return None
    return rows if rows.num_rows else None


def _constant(text: str, size: int) -> pa.Array:
    return pa.array([text] * size, pa.string())


def _read_slices(rank: RankRun, first: int) -> dict[str, Any] | None:
    columns = ("id", "parent", "track", "start_ns", "duration_ns", "name", "category", "step", "launched_by")
    slices = _read(rank, "slices", columns)
    if slices is not None and find_files(rank.folder, "steps"):
        # A trace marks steps too; those of the table are the ones that have phases.
        marks = pa.array(["step", "phase"], pa.string())
        slices = slices.filter(pc.invert(pc.is_in(slices["category"].cast(pa.string()), marks)))
    tracks = _read(rank, "tracks", ("track", "kind", "name", "process", "device", "stream"))
    if slices is None or tracks is None or not slices.num_rows:
        return None
    place = pc.index_in(slices["track"], tracks["track"].combine_chunks())
    of_track = tracks.take(place.combine_chunks())
    return {
        "span_id": pc.add(slices["id"], first),
        "parent_span_id": pc.add(slices["parent"], first),
        "start": slices["start_ns"],
        "dur": slices["duration_ns"],
        "cat": slices["category"],
        "name": slices["name"],
        "process": of_track["process"],
        "thread": of_track["name"],
        "device": of_track["device"],
        "stream": of_track["stream"],
        "step": slices["step"],
        "launched_by": pc.add(slices["launched_by"], first),
    }


def _read_steps(rank: RankRun, first: int) -> dict[str, Any] | None:
    steps = _read(rank, "steps", ("index", *timeline_rows.STEP_COLUMNS))
    if steps is None:
        return None
    train = is_kind(steps, "train")
    return {
        **_place(steps, timeline_rows.place_steps(steps)),
        "span_id": pc.add(steps["index"], first),
        "step": pc.if_else(train, steps["step"], None),
    }


def _read_phases(rank: RankRun, first: int) -> dict[str, Any] | None:
    phases = _read(rank, "phases", ("index", *timeline_rows.PHASE_COLUMNS))
    steps = _read(rank, "steps", ("index", "kind"))
    if phases is None or steps is None:
        return None
    return {
        **_place(phases, timeline_rows.place_phases(phases)),
        "span_id": np.arange(first, first + phases.num_rows),
        # Steps come before phases: their spans end where these begin.
        "parent_span_id": pc.add(phases["index"], first - 1 - int(pc.max(steps["index"]).as_py())),
        "step": phases["step"],
    }


def _read_ranges(rank: RankRun, first: int) -> dict[str, Any] | None:
    ranges = _read(rank, "ranges", timeline_rows.RANGE_COLUMNS)
    if ranges is None:
        return None
    return {
        **_place(ranges, timeline_rows.place_ranges(ranges)),
        "span_id": pc.add(ranges["id"], first),
        "parent_span_id": pc.add(ranges["parent"], first),
        "cat": _constant("range", ranges.num_rows),
        "step": ranges["step"],
    }


def _read_collectives(rank: RankRun, first: int) -> dict[str, Any] | None:
    found = _read(rank, "collectives", timeline_rows.COLLECTIVE_COLUMNS)
    light = None if found is None else timeline_rows.select_light(found)
    if light is None or not light.num_rows:
        return None
    return {
        **_place(light, timeline_rows.place_collectives(light)),
        "span_id": np.arange(first, first + light.num_rows),
        "step": light["step"],
    }


def _read_stages(rank: RankRun, first: int, workers: Collection[int] | None = None) -> dict[str, Any] | None:
    stages = _read(rank, "stages", timeline_rows.STAGE_COLUMNS)
    if stages is not None and workers is not None:
        stages = keep_workers(stages, workers)
    if stages is None or not stages.num_rows:
        return None
    placed = timeline_rows.place_stages(stages)
    return {**_place(stages, placed), "span_id": np.arange(first, first + stages.num_rows)}


def _place(rows: pa.Table, placed: timeline_rows.Placed) -> dict[str, Any]:
    row = pa.array(placed.row)
    return {
        "start": rows["start_ns"],
        "dur": rows["duration_ns"],
        "cat": placed.category,
        "name": placed.name,
        "process": pa.array([entry.process for entry in placed.rows], pa.string()).take(row),
        "thread": pa.array([entry.name for entry in placed.rows], pa.string()).take(row),
    }


def _choose(spans: pa.Table, choice: SpanChoice) -> pa.Table:
    on_device = pc.is_valid(spans["stream"])
    if choice.activities == ("cpu",):
        spans = spans.filter(pc.invert(on_device))
    elif choice.activities == ("device",):
        spans = spans.filter(on_device)
    if choice.categories is not None:
        spans = spans.filter(pc.is_in(spans["cat"], pa.array(choice.categories, pa.string())))
    if choice.steps is not None:
        first, last = choice.steps
        step = spans["step"]
        spans = spans.filter(pc.and_(pc.greater_equal(step, first), pc.less_equal(step, last)))
    return spans


def _number_operators(spans: pa.Table) -> pa.Table:
    is_operator = pc.equal(spans["cat"], "operator").to_numpy()
    numbers: npt.NDArray[np.int64] = np.cumsum(is_operator) - 1
    place = spans.schema.get_field_index("operator_index")
    return spans.set_column(place, SCHEMA.field("operator_index"), pa.array(numbers, mask=~is_operator))
