"""Slices that the tables `steps`, `phases`, `ranges`, `compiles`, `collectives` and `stages` tell, as tracks.

They make the timeline of light mode, and cover the steps outside of detailed windows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from collector.format.phases import PHASE_LABELS
from collector.format.run import RankRun
from collector.format.schema.errors import TableBrokenError, TableMissingError
from profiler_server.analysis.operators.nesting import count_parents
from profiler_server.analysis.steps.interruptions import Kind, read_interruptions
from profiler_server.analysis.steps.triggers import explain_windows
from profiler_server.timeline.sources import Track

GROUP_TRAINING = "Training"
GROUP_DATA = "Data pipeline"
_STEPS_ORDER, _WINDOWS_ORDER, _INTERRUPTIONS_ORDER, _COLLECTIVES_ORDER, _RANGES_ORDER = 0, 2, 3, 5, 6
_STAGES_ORDER = 2_000_000_000
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
    for kind, build in _BUILDERS:
        new_tracks, slices = build(rank, number)
        if slices.num_rows:
            superseded += [track.id for track in tracks if kind and track.kind == kind]
            made += new_tracks
            pieces.append(slices)
            number += len(new_tracks)
    whole = pa.concat_tables([DERIVED_SCHEMA.empty_table(), *pieces]).unify_dictionaries().combine_chunks()
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
    name = _relabel(data["phase"], PHASE_LABELS)
    category = _constant("phase", data.num_rows)
    return [Track(number, "phase", "Phases", GROUP_TRAINING, _STEPS_ORDER + 1)], _table(
        data, "phases", name, category, number
    )


def _derive_windows(rank: RankRun, number: int) -> tuple[list[Track], pa.Table]:
    """Say where the detailed windows are, and why each opened."""
    found = explain_windows(rank.manifest)
    if not found:
        return [], DERIVED_SCHEMA.empty_table()
    starts, ends = ([getattr(entry.window, name) for entry in found] for name in ("start_ns", "end_ns"))
    lengths = [max(end - start, 0) for start, end in zip(starts, ends, strict=True)]
    data = pa.table({"start_ns": pa.array(starts, pa.int64()), "duration_ns": pa.array(lengths, pa.int64())})
    name = pa.array([f"Detailed window, {entry.text}" for entry in found])
    track = Track(number, "range", "Detailed windows", GROUP_TRAINING, _WINDOWS_ORDER)
    return [track], _table(data, "", name, _constant("overhead", data.num_rows), number)


def _derive_interruptions(rank: RankRun, number: int) -> tuple[list[Track], pa.Table]:
    """Give what held the training up two tracks: checkpoints and validation, and what was compiled."""
    found = read_interruptions(rank)
    plans: tuple[tuple[str, str, tuple[Kind, ...]], ...] = (
        ("Checkpoints, validation", "annotation", ("checkpoint", "validation")),
        ("torch.compile", "overhead", ("compile", "recompile")),
    )
    names = [f"{held.label}: {held.reason}" if held.reason else held.label for held in found.held]
    tracks: list[Track] = []
    pieces = [DERIVED_SCHEMA.empty_table()]
    for title, category, kinds in plans:
        rows = found.of_kind(*kinds)
        if not len(rows.which):
            continue
        track = Track(number + len(tracks), "range", title, GROUP_TRAINING, _INTERRUPTIONS_ORDER + len(tracks))
        data = pa.table({"start_ns": rows.start_ns, "duration_ns": rows.duration_ns})
        name = pa.array(names, pa.string()).take(pa.array(rows.which))
        pieces.append(_table(data, "", name, _constant(category, data.num_rows), track.id))
        tracks.append(track)
    return tracks, pa.concat_tables(pieces)


def _derive_collectives(rank: RankRun, number: int) -> tuple[list[Track], pa.Table]:
    """Give the collectives of each process group a track; those of detailed windows have slices of their own."""
    data = _read(rank, "collectives", ["step", "name", "group", "start_ns", "duration_ns", "held_ns"])
    data = None if data is None else data.filter(pc.is_valid(data["held_ns"])).combine_chunks()
    if data is None or not data.num_rows:
        return [], DERIVED_SCHEMA.empty_table()
    encoded = data["group"].combine_chunks().cast(pa.string()).dictionary_encode()
    groups = encoded.dictionary.to_pylist()
    tracks = [
        Track(number + i, "range", f"Collectives, group {name or 'default'}", GROUP_TRAINING, _COLLECTIVES_ORDER)
        for i, name in enumerate(groups)
    ]
    track = np.asarray(encoded.indices.to_numpy(zero_copy_only=False), np.int32) + number
    return tracks, _table(data, "collectives", data["name"], _constant("communication", data.num_rows), track)


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
    depth = pa.array(count_parents(data["id"].to_numpy(), pc.fill_null(data["parent"], -1).to_numpy()), pa.int32())
    return tracks, table.set_column(1, DERIVED_SCHEMA.field("depth"), depth)


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


_BUILDERS = (
    ("step", _derive_steps),
    ("phase", _derive_phases),
    ("", _derive_windows),
    ("", _derive_interruptions),
    ("", _derive_collectives),
    ("", _derive_ranges),
    ("", _derive_stages),
)
"""What makes tracks, each with the kind of the trace's own tracks that it takes the place of."""


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
