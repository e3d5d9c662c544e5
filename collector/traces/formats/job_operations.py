"""Operations of a whole pipeline-parallel job in one Parquet file, in the format of the what-if study of OSDI 2025.

Columns: dp_rank, stage, rank, step, optype, seq_id, mc, gmc, mb_id, and start_ts and duration in seconds since the
start of the step. One file holds all ranks, which become the ranks of one run.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from collector.format import parts
from collector.format.intervals import Ints
from collector.format.phases import PHASE_NAMES
from collector.format.schema.errors import TraceError
from collector.traces.format import ReadOptions, StreamedTables, TraceFacts, TraceFormat, TraceTables, in_batches

_MAGIC = b"PAR1"
_NEVER_ABSENT = ("dp_rank", "stage", "rank", "step", "seq_id")
_INTEGERS = (*_NEVER_ABSENT, "mc", "gmc")
_COLUMNS = (*_INTEGERS, "start_ts", "duration", "optype")
_MOST_ROWS = 50_000_000
_LONGEST_S = 86_400.0
_PHASES = {
    "forward-compute": "forward",
    "backward-compute": "backward",
    "optimizer": "optimizer",
    "gc": "gap",
}


def read(path: Path, options: ReadOptions) -> TraceTables | None:
    with path.open("rb") as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            return None
    job = _Job(_read_columns(path), path)
    first, *others = (job.build(rank) for rank in np.unique(job.numbers["rank"]).tolist())
    return TraceTables(first.tables, first.facts, beside=tuple(others))


def _read_columns(path: Path) -> pa.Table:
    """Return the columns of the file. Raises TraceError if it is damaged, lacks a column, or is far too long."""
    try:
        with pq.ParquetFile(path) as file:
            missing = [name for name in _COLUMNS if name not in file.schema_arrow.names]
            if missing:
                raise TraceError(f"{path} is Parquet, but not the operations of a job: it has no column {missing[0]!r}")
            double = [name for name in _COLUMNS if file.schema_arrow.names.count(name) > 1]
            if double:
                raise TraceError(f"{path} is damaged: it has two columns {double[0]!r}")
            if file.metadata.num_rows > _MOST_ROWS:
                raise TraceError(f"{path} has {file.metadata.num_rows:,} rows; up to {_MOST_ROWS:,} are read")
            return file.read(list(_COLUMNS))
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise TraceError(f"{path} is damaged: {str(error).splitlines()[0]}") from None


def _cast(table: pa.Table, name: str, held: tuple[pa.DataType, str], path: Path) -> pa.ChunkedArray:
    kind, what = held
    try:
        return table.column(name).cast(kind)
    except pa.ArrowException:
        raise TraceError(f"{path}: the column {name!r} does not hold {what}") from None


def _read_integers(table: pa.Table, name: str, path: Path) -> Ints:
    found = _cast(table, name, (pa.int64(), "whole numbers"), path).fill_null(-1).to_numpy()
    if name in _NEVER_ABSENT and found.min() < 0:
        raise TraceError(f"{path}: row {int(found.argmin()) + 1} has no {name}")
    return np.asarray(found, dtype=np.int64)


def _read_kinds(table: pa.Table, path: Path) -> pa.Array:
    kinds = _cast(table, "optype", (pa.string(), "names"), path).combine_chunks()
    if kinds.null_count:
        raise TraceError(f"{path}: row {kinds.is_null().index(True).as_py() + 1} has no optype")
    return kinds


def _read_ns(table: pa.Table, name: str, path: Path) -> Ints:
    values = _cast(table, name, (pa.float64(), "seconds"), path).to_numpy(zero_copy_only=False)
    wrong = np.flatnonzero(~np.isfinite(values) | (np.abs(values) > _LONGEST_S))
    if len(wrong):
        raise TraceError(
            f"{path}: row {int(wrong[0]) + 1} has {name} {values[wrong[0]]}, which is no time within a day"
        )
    times: Ints = np.rint(values * 1e9).astype(np.int64)
    return times


class _Job:
    """The rows of the file, with its steps placed one after the other. In the file, each step begins at time 0."""

    def __init__(self, table: pa.Table, path: Path) -> None:
        if not table.num_rows:
            raise TraceError(f"{path} has no rows")
        self.numbers = {name: _read_integers(table, name, path) for name in _INTEGERS}
        self._kind = _read_kinds(table, path)
        self._duration = np.maximum(_read_ns(table, "duration", path), 0)
        start = _read_ns(table, "start_ts", path)
        self._steps, self._step = np.unique(self.numbers["step"], return_inverse=True)
        begins, ends = (np.full(len(self._steps), fill, np.int64) for fill in (1 << 60, -(1 << 60)))
        np.minimum.at(begins, self._step, start)
        np.maximum.at(ends, self._step, start + self._duration)
        self._lengths = ends - begins
        self._at = np.concatenate([[0], np.cumsum(self._lengths)[:-1]])
        self._start = start - begins[self._step] + self._at[self._step]

    def build(self, rank: int) -> TraceTables:
        rows = np.flatnonzero(self.numbers["rank"] == rank)
        rows = rows[np.argsort(self._start[rows], kind="stable")]
        makers = {
            "steps": self._build_steps,
            "job_operations": self._build_operations,
            "slices": self._build_slices,
            "tracks": self._build_tracks,
        }
        tables = StreamedTables({name: in_batches(partial(make, rows)) for name, make in makers.items()})
        return TraceTables(tables, self._describe(rank))

    def _list_kinds(self, rows: Ints) -> list[str]:
        kinds: list[str] = self._kind.take(pa.array(rows)).to_pylist()
        return kinds

    def _describe(self, rank: int) -> TraceFacts:
        """Return the facts of a rank. A file has one tensor-parallel rank per stage and replica; all count."""
        ranks = np.unique(self.numbers["rank"])
        apart = int(np.gcd.reduce(ranks)) if len(ranks) > 1 else 1
        return TraceFacts(
            rank=rank,
            world_size=len(ranks) * max(apart, 1),
            end_ns=int(self._lengths.sum()),
            facts={"job_operations": "pipeline"},
        )

    def _build_operations(self, rows: Ints) -> pa.Table:
        numbers = {name: values[rows] for name, values in self.numbers.items()}
        return parts.build_table(
            "job_operations",
            {
                "step": numbers["step"],
                "kind": self._list_kinds(rows),
                "sequence": numbers["seq_id"],
                "stage": numbers["stage"],
                "replica": numbers["dp_rank"],
                "start_ns": self._start[rows],
                "duration_ns": self._duration[rows],
                "chunk": pa.array(numbers["mc"], mask=numbers["mc"] < 0),
                "depth": pa.array(numbers["gmc"], mask=numbers["gmc"] < 0),
            },
        )

    def _build_steps(self, rows: Ints) -> pa.Table:
        """Build the table `steps`. All time outside computation, such as waiting for other stages, is communication."""
        count, kinds = len(self._steps), np.array(self._list_kinds(rows))
        phases = {name: np.zeros(count, np.int64) for name in PHASE_NAMES}
        left = self._lengths.copy()
        calls: dict[str, Ints] = {}
        for kind, phase in _PHASES.items():
            chosen = rows[kinds == kind]
            calls[kind] = np.bincount(self._step[chosen], minlength=count)
            sums = np.bincount(self._step[chosen], weights=self._duration[chosen].astype(float), minlength=count)
            taken = np.minimum(np.rint(sums).astype(np.int64), left)
            phases[phase] += taken
            left -= taken
        phases["communication"] += left
        return parts.build_table(
            "steps",
            {
                "index": np.arange(count),
                "step": self._steps,
                "kind": ["train"] * count,
                "start_ns": self._at,
                "duration_ns": self._lengths,
                **{f"{name}_ns": values for name, values in phases.items()},
                "forwards": calls["forward-compute"],
                "backwards": calls["backward-compute"],
                **dict.fromkeys(("fetches", "skipped_updates", "loader_start_ns", "gc_ns"), np.zeros(count, np.int64)),
                "optimizer_steps": np.ones(count, np.int64),
                "detailed": np.zeros(count, bool),
                "markers": np.ones(count, bool),
            },
        )

    def _build_slices(self, rows: Ints) -> pa.Table:
        kinds = self._list_kinds(rows)
        numbers = _number_tracks(kinds)
        track = np.array([numbers[name] for name in kinds])
        start, duration = self._start[rows], self._duration[rows]
        return parts.build_table(
            "slices",
            {
                "id": np.arange(len(rows)),
                "track": track,
                "depth": _stack(track, start, start + duration),
                "start_ns": start,
                "duration_ns": duration,
                "name": kinds,
                "category": ["annotation" if name in _PHASES else "communication" for name in kinds],
                "step": self.numbers["step"][rows],
            },
        )

    def _build_tracks(self, rows: Ints) -> pa.Table:
        names = {number: name for name, number in _number_tracks(self._list_kinds(rows)).items()} | {0: "computation"}
        lines = [
            {"track": number, "kind": "annotation", "name": name, "process": "job", "order": number, "unit": ""}
            for number, name in sorted(names.items())
        ]
        return parts.build_table_from_rows("tracks", lines)


def _number_tracks(kinds: list[str]) -> dict[str, int]:
    """Return a track number for each operation type: one for all computation, one for each type of communication."""
    others = sorted(set(kinds) - _PHASES.keys())
    return dict.fromkeys(_PHASES, 0) | {name: number for number, name in enumerate(others, 1)}


def _stack(track: Ints, start: Ints, end: Ints) -> Ints:
    """Return for each slice the lowest depth that is free on its track at its start. Slices must be sorted by start."""
    free: dict[int, list[int]] = {}
    depths = np.zeros(len(track), np.int64)
    for at, (row, begin, stop) in enumerate(zip(track.tolist(), start.tolist(), end.tolist(), strict=True)):
        lanes = free.setdefault(row, [])
        depth = next((number for number, until in enumerate(lanes) if until <= begin), len(lanes))
        lanes[depth : depth + 1] = [stop]
        depths[at] = depth
    return depths


FORMAT = TraceFormat("operations of a job", "job_operations", (".parquet",), 5, read)
