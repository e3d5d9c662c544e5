"""Slices that the tables `steps`, `phases`, `ranges` and `stages` tell, and what the device was busy with, as tracks.

They make the timeline of light mode, and cover the steps outside of detailed windows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from collector.run import RankRun
from collector.schema.errors import TableBrokenError, TableMissingError
from collector.schema.phases import PHASES
from profiler_server.analysis.intervals import Intervals, Ints, unite
from profiler_server.timeline.sources import Track, read_columns

GROUP_TRAINING = "Training"
GROUP_DATA = "Data pipeline"
GROUP_DEVICE = "Device, all streams"
# Orders of the groups; tracks of the trace stand between the device summary and the data pipeline.
_STEPS_ORDER, _RANGES_ORDER, _DEVICE_ORDER, TRACE_ORDER, _STAGES_ORDER = 0, 2, 10, 1_000, 2_000_000_000
_DEEPEST = 200
_DEVICE_KINDS = {"compute": ("kernel", "memset"), "communication": ("communication",), "copy": ("memcpy",)}
_WAIT_LABELS = {
    "input_wait": "wait on input queue",
    "output_wait": "wait on output queue",
    "setup": "set up",
    "cleanup": "clean up",
}

DERIVED_SCHEMA = pa.schema(
    [
        ("track", pa.int32()),
        ("depth", pa.int32()),
        ("start_ns", pa.int64()),
        ("duration_ns", pa.int64()),
        ("name", pa.dictionary(pa.int32(), pa.string())),
        ("category", pa.dictionary(pa.int32(), pa.string())),
        ("step", pa.int64()),
        ("table", pa.dictionary(pa.int32(), pa.string())),
        ("row", pa.int64()),
    ]
)
"""Derived slices; `table` and `row` say which row of the run each stands for."""


@dataclass(frozen=True)
class Derived:
    """Derived tracks, their slices in start order, and the trace's tracks that they take the place of."""

    tracks: tuple[Track, ...]
    slices: pa.Table
    superseded: tuple[int, ...]


def derive_slices(rank: RankRun, tracks: list[Track], number: int) -> Derived:
    """Derive what the tables tell beside `slices`; new tracks are numbered from `number`.

    A table that is absent or damaged adds nothing.
    """
    made: list[Track] = []
    pieces: list[pa.Table] = []
    superseded: list[int] = []
    for kind, build in (("step", _derive_steps), ("phase", _derive_phases), ("", _derive_ranges), ("", _derive_stages)):
        new_tracks, slices = build(rank, number)
        if slices.num_rows:
            superseded += [track.id for track in tracks if kind and track.kind == kind]
            made += new_tracks
            pieces.append(slices)
            number += len(new_tracks)
    new_tracks, slices = _derive_device(rank, tracks, number)
    made += new_tracks
    pieces.append(slices)
    whole = pa.concat_tables(pieces).unify_dictionaries().combine_chunks()
    order = pc.sort_indices(whole, sort_keys=[("start_ns", "ascending")])
    return Derived(tuple(made), whole.take(order), tuple(superseded))


def _read(rank: RankRun, table: str, columns: list[str]) -> pa.Table | None:
    try:
        data = rank.table(table, columns=columns).unify_dictionaries().combine_chunks()
    except (TableMissingError, TableBrokenError):  # the page says which are damaged, and shows the others
        return None
    return data if data.num_rows else None


def _derive_steps(rank: RankRun, number: int) -> tuple[list[Track], pa.Table]:
    data = _read(rank, "steps", ["step", "kind", "start_ns", "duration_ns"])
    if data is None:
        return [], DERIVED_SCHEMA.empty_table()
    train = pc.equal(data["kind"].cast(pa.string()), "train")
    number_text = pc.cast(data["step"], pa.string())
    evaluation = pc.equal(data["kind"].cast(pa.string()), "eval")
    other = pc.if_else(evaluation, "Evaluation", data["kind"].cast(pa.string()))
    name = pc.if_else(train, pc.binary_join_element_wise("Step", number_text, " "), other)
    category = pc.if_else(train, "step", pc.if_else(evaluation, "annotation", "other"))
    return [Track(number, "step", "Steps", GROUP_TRAINING, _STEPS_ORDER)], _table(data, "steps", name, category, number)


def _derive_phases(rank: RankRun, number: int) -> tuple[list[Track], pa.Table]:
    data = _read(rank, "phases", ["step", "phase", "start_ns", "duration_ns"])
    if data is None:
        return [], DERIVED_SCHEMA.empty_table()
    labels = {phase.name: phase.label for phase in PHASES}
    name = _relabel(data["phase"], labels)
    category = _constant("phase", data.num_rows)
    return [Track(number, "phase", "Phases", GROUP_TRAINING, _STEPS_ORDER + 1)], _table(
        data, "phases", name, category, number
    )


def _derive_ranges(rank: RankRun, number: int) -> tuple[list[Track], pa.Table]:
    """Give every thread that marked ranges one track, on which they nest."""
    data = _read(rank, "ranges", ["id", "parent", "name", "process", "thread_id", "step", "start_ns", "duration_ns"])
    if data is None:
        return [], DERIVED_SCHEMA.empty_table()
    process = pc.fill_null(data["process"].cast(pa.string()), "")
    thread = data["thread_id"].cast(pa.string())
    encoded = pc.binary_join_element_wise(process, thread, ".").combine_chunks().dictionary_encode()
    threads = encoded.dictionary.to_pylist()
    only = len(threads) == 1
    tracks = [
        Track(number + i, "range", "Ranges" if only else f"Ranges, thread {name}", GROUP_TRAINING, _RANGES_ORDER + i)
        for i, name in enumerate(threads)
    ]
    track = np.asarray(encoded.indices.to_numpy(zero_copy_only=False), np.int32) + number
    table = _table(data, "ranges", data["name"], _constant("annotation", data.num_rows), track)
    depth = pa.array(_count_parents(data["id"].to_numpy(), pc.fill_null(data["parent"], -1).to_numpy()), pa.int32())
    return tracks, table.set_column(1, DERIVED_SCHEMA.field("depth"), depth)


def _count_parents(ids: Ints, parents: Ints) -> np.ndarray:
    """Return how many ranges are open around each; one whose parent is not there stands outermost."""
    order = np.argsort(ids)
    at = np.minimum(np.searchsorted(ids, parents, sorter=order), ids.size - 1)
    above = np.where(ids[order[at]] == parents, order[at], -1)
    depth = np.zeros(ids.size, np.int32)
    current = above
    # One round per level; a damaged table that loops ends at the limit.
    for _ in range(_DEEPEST):
        inside = current >= 0
        if not inside.any():
            break
        depth += inside
        current = np.where(inside, above[current], -1)
    return depth


def _derive_stages(rank: RankRun, number: int) -> tuple[list[Track], pa.Table]:
    """Give every worker one track; the process that trains and the user's stages have tracks by stage and replica."""
    columns = ["stage", "replica", "kind", "detail", "loader", "start_ns", "duration_ns"]
    data = _read(rank, "stages", columns)
    if data is None:
        return [], DERIVED_SCHEMA.empty_table()
    stage = data["stage"].cast(pa.string())
    worker = pc.and_(pc.is_valid(data["loader"]), pc.greater_equal(data["replica"], 0))
    replica = pc.cast(data["replica"], pa.string())
    loader = pc.fill_null(pc.cast(data["loader"], pa.string()), "")
    several = len(pc.unique(pc.drop_null(data["loader"].combine_chunks()))) > 1
    worker_label = pc.binary_join_element_wise("worker", replica, " ")
    if several:
        worker_label = pc.binary_join_element_wise(
            worker_label, pc.binary_join_element_wise("loader", loader, " "), ", "
        )
    main_label = pc.if_else(
        pc.is_valid(data["loader"]),
        pc.binary_join_element_wise(stage, "main process", ", "),
        pc.binary_join_element_wise(stage, replica, " "),
    )
    encoded = pc.if_else(worker, worker_label, main_label).combine_chunks().dictionary_encode()
    labels = encoded.dictionary.to_pylist()
    tracks = [
        Track(
            number + i, "worker" if label.startswith("worker ") else "stage", label, GROUP_DATA, _STAGES_ORDER + place
        )
        for i, (label, place) in enumerate(zip(labels, _natural_places(labels), strict=True))
    ]
    detail = pc.fill_null(data["detail"].cast(pa.string()), "")
    kind = data["kind"].cast(pa.string())
    work = pc.equal(kind, "work")
    shown = pc.if_else(pc.equal(detail, ""), stage, pc.binary_join_element_wise(stage, detail, ": "))
    name = pc.if_else(work, shown, pc.binary_join_element_wise(stage, _relabel(data["kind"], _WAIT_LABELS), ": "))
    waits = pc.ends_with(kind, "_wait")
    category = pc.if_else(waits, "wait", "stage")
    track = np.asarray(encoded.indices.to_numpy(zero_copy_only=False), np.int32) + number
    return tracks, _table(data, "stages", name, category, track)


def _derive_device(rank: RankRun, tracks: list[Track], number: int) -> tuple[list[Track], pa.Table]:
    """Computation, exposed and overlapped communication, and free time, over all streams of the rank."""
    streams = [track.id for track in tracks if track.kind == "stream"]
    busy = _read_device_work(rank, streams) if streams else {}
    if not busy:
        return [], DERIVED_SCHEMA.empty_table()
    compute, communication, copies = (
        unite(*busy.get(kind, (np.zeros(0, np.int64),) * 2)) for kind in ("compute", "communication", "copy")
    )
    device = unite(np.concatenate([s for s, _ in busy.values()]), np.concatenate([e for _, e in busy.values()]))
    span = Intervals(device.starts[:1], device.ends[-1:])
    rows = (
        ("Computation", "kernel", compute),
        ("Communication, overlapped", "overlap", communication & compute),
        ("Communication, exposed", "communication", communication - compute),
        ("Copies, exposed", "memcpy", copies - compute - communication),
        ("Free time", "wait", span - device),
    )
    shown = [row for row in rows if row[2].starts.size]
    made = [Track(number + i, "device", name, GROUP_DEVICE, _DEVICE_ORDER + i) for i, (name, _, _) in enumerate(shown)]
    pieces = [_interval_table(track, *row) for track, row in zip(made, shown, strict=True)]
    return made, pa.concat_tables(pieces) if pieces else DERIVED_SCHEMA.empty_table()


def _read_device_work(rank: RankRun, streams: list[int]) -> dict[str, tuple[Ints, Ints]]:
    kinds = {name: kind for kind, names in _DEVICE_KINDS.items() for name in names}
    found: dict[str, list[tuple[Ints, Ints]]] = {}
    for raw in read_columns(rank, ("track", "start_ns", "duration_ns", "category")):
        start = raw.column("start_ns").to_numpy()
        end = start + raw.column("duration_ns").to_numpy()
        on_stream = np.isin(raw.column("track").to_numpy(), streams)
        category = raw.column("category")
        encoded = category if pa.types.is_dictionary(category.type) else category.dictionary_encode()
        for code, name in enumerate(encoded.dictionary.to_pylist()):
            if name in kinds:
                rows = on_stream & (encoded.indices.to_numpy(zero_copy_only=False) == code)
                found.setdefault(kinds[name], []).append((start[rows], end[rows]))
    joined = {
        kind: (np.concatenate([s for s, _ in pieces]), np.concatenate([e for _, e in pieces]))
        for kind, pieces in found.items()
    }
    return {kind: pair for kind, pair in joined.items() if pair[0].size}


def _interval_table(track: Track, name: str, category: str, found: Intervals) -> pa.Table:
    data = pa.table({"start_ns": found.starts, "duration_ns": found.ends - found.starts})
    return _table(data, "", _constant(name, data.num_rows), _constant(category, data.num_rows), track.id)


def _constant(text: str, size: int) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(size, np.int32)), pa.array([text], pa.string()))


def _table(data: pa.Table, table: str, name: pa.Array, category: pa.Array, track: int | np.ndarray) -> pa.Table:
    size = data.num_rows
    tracks = np.full(size, track, np.int32) if isinstance(track, int) else track
    step = data["step"] if "step" in data.column_names else pa.nulls(size, pa.int64())
    columns = [
        pa.array(tracks, pa.int32()),
        pa.array(np.zeros(size, np.int32)),
        data["start_ns"],
        data["duration_ns"],
        _encode(name),
        _encode(category),
        step,
        _constant(table, size),
        pa.array(np.arange(size)),
    ]
    return pa.table(dict(zip(DERIVED_SCHEMA.names, columns, strict=True)), schema=DERIVED_SCHEMA)


def _encode(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    whole = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    encoded = whole if pa.types.is_dictionary(whole.type) else whole.dictionary_encode()
    return encoded.cast(DERIVED_SCHEMA.field("name").type)


def _relabel(column: pa.ChunkedArray, labels: dict[str, str]) -> pa.Array:
    encoded = column.combine_chunks()
    if not pa.types.is_dictionary(encoded.type):
        encoded = encoded.dictionary_encode()
    shown = pa.array([labels.get(value, value) for value in encoded.dictionary.to_pylist()], pa.string())
    return shown.take(encoded.indices)


def _natural_places(labels: list[str]) -> list[int]:
    def key(label: str) -> tuple[str, int, str]:
        words = label.split(",")[0].rsplit(" ", 1)
        number = int(words[-1]) if words[-1].lstrip("-").isdigit() else -1
        return words[0], number, label

    places = {label: place for place, label in enumerate(sorted(labels, key=key))}
    return [places[label] for label in labels]
