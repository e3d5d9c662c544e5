"""Operations of a whole pipeline-parallel job in one Parquet file, as the what-if study of OSDI 2025 publishes them.

Columns: dp_rank, stage, rank, step, optype, seq_id, mc, gmc, mb_id, and start_ts and duration in seconds since the
start of the step. One file holds all ranks; they become the ranks of one run.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from collector.format import parts
from collector.format.intervals import Ints
from collector.format.phases import PHASE_NAMES
from collector.format.schema.errors import TraceError
from collector.traces.format import ReadOptions, StreamedTables, TraceFacts, TraceTables

_MAGIC = b"PAR1"
_INTEGERS = ("dp_rank", "stage", "rank", "step", "seq_id", "mc", "gmc")
_SECONDS = ("start_ts", "duration")
_COLUMNS = (*_INTEGERS, *_SECONDS, "optype")
_MOST_ROWS = 50_000_000
_LONGEST_S = 86_400.0
_PHASES = {
    "forward-compute": "forward",
    "backward-compute": "backward",
    "optimizer": "optimizer",
    "gc": "gap",
}
_COMPUTED = tuple(_PHASES)


class JobFormat:
    """See `TraceFormat`."""

    name = "operations of a job (.parquet)"
    order = 5

    def read(self, path: Path, options: ReadOptions) -> TraceTables | None:
        with path.open("rb") as file:
            if file.read(len(_MAGIC)) != _MAGIC:
                return None
        job = _Job(_read_columns(path), path)
        ranks = [job.describe(rank) for rank in np.unique(job.rank).tolist()]
        first, *others = (TraceTables(StreamedTables(job.stream(facts.rank)), facts) for facts in ranks)
        return TraceTables(first.tables, first.facts, beside=tuple(others))


def _read_columns(path: Path) -> pa.Table:
    """Read the columns. TraceError if the file is damaged, lacks one, or is far longer than any such trace."""
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


def _read_integers(table: pa.Table, name: str, path: Path) -> Ints:
    try:
        values = table.column(name).cast(pa.int64()).fill_null(-1).to_numpy()
    except pa.ArrowException:
        raise TraceError(f"{path}: the column {name!r} does not hold whole numbers") from None
    return np.asarray(values, dtype=np.int64)


def _read_kinds(table: pa.Table, path: Path) -> pa.Array:
    try:
        kinds = table.column("optype").cast(pa.string()).combine_chunks()
    except pa.ArrowException:
        raise TraceError(f"{path}: the column 'optype' does not hold names") from None
    if kinds.null_count:
        raise TraceError(f"{path}: row {kinds.is_null().index(True).as_py() + 1} has no optype")
    return kinds


def _read_ns(table: pa.Table, name: str, path: Path) -> Ints:
    try:
        values = table.column(name).cast(pa.float64()).to_numpy(zero_copy_only=False)
    except pa.ArrowException:
        raise TraceError(f"{path}: the column {name!r} does not hold seconds") from None
    wrong = np.flatnonzero(~np.isfinite(values) | (np.abs(values) > _LONGEST_S))
    if len(wrong):
        raise TraceError(
            f"{path}: row {int(wrong[0]) + 1} has {name} {values[wrong[0]]}, which is no time within a day"
        )
    times: Ints = np.rint(values * 1e9).astype(np.int64)
    return times


class _Job:
    """The rows of the file, with the steps laid one after the other: the file tells times within each step only."""

    def __init__(self, table: pa.Table, path: Path) -> None:
        if not table.num_rows:
            raise TraceError(f"{path} has no rows")
        numbers = {name: _read_integers(table, name, path) for name in _INTEGERS}
        for name in ("dp_rank", "stage", "rank", "step", "seq_id"):
            if numbers[name].min() < 0:
                raise TraceError(f"{path}: row {int(numbers[name].argmin()) + 1} has no {name}")
        self.rank = numbers["rank"]
        self._numbers = numbers
        self._kind = _read_kinds(table, path)
        self._duration = np.maximum(_read_ns(table, "duration", path), 0)
        start = _read_ns(table, "start_ts", path)
        self.steps, step = np.unique(numbers["step"], return_inverse=True)
        begins, ends = (np.full(len(self.steps), fill, np.int64) for fill in (1 << 60, -(1 << 60)))
        np.minimum.at(begins, step, start)
        np.maximum.at(ends, step, start + self._duration)
        self.lengths = ends - begins
        self._at = np.concatenate([[0], np.cumsum(self.lengths)[:-1]])
        self._step = step
        self._start = start - begins[step] + self._at[step]

    def describe(self, rank: int) -> TraceFacts:
        """Only one of the tensor-parallel ranks of each stage and replica is in the file, so their numbers have gaps."""
        ranks = np.unique(self.rank)
        apart = int(np.gcd.reduce(ranks)) if len(ranks) > 1 else 1
        return TraceFacts(
            rank=rank,
            world_size=len(ranks) * max(apart, 1),
            devices=(),
            epoch_unix_ns=0,
            absolute=False,
            end_ns=int(self.lengths.sum()),
            facts={"job_operations": "pipeline"},
        )

    def stream(self, rank: int | None) -> dict[str, Any]:
        rows = np.flatnonzero(self.rank == rank)
        rows = rows[np.argsort(self._start[rows], kind="stable")]
        kinds = self._kind.take(pa.array(rows))
        tables = {
            "steps": lambda: self._build_steps(rows, kinds),
            "job_operations": lambda: self._build_operations(rows, kinds),
            "slices": lambda: self._build_slices(rows, kinds),
            "tracks": lambda: _build_tracks(kinds),
        }
        return {name: _as_stream(build) for name, build in tables.items()}

    def _build_operations(self, rows: Ints, kinds: pa.Array) -> pa.Table:
        numbers = {name: values[rows] for name, values in self._numbers.items()}
        return parts.build_table(
            "job_operations",
            {
                "step": numbers["step"],
                "kind": kinds.to_pylist(),
                "sequence": numbers["seq_id"],
                "stage": numbers["stage"],
                "replica": numbers["dp_rank"],
                "start_ns": self._start[rows],
                "duration_ns": self._duration[rows],
                "chunk": pa.array(numbers["mc"], mask=numbers["mc"] < 0),
                "depth": pa.array(numbers["gmc"], mask=numbers["gmc"] < 0),
            },
        )

    def _build_steps(self, rows: Ints, kinds: pa.Array) -> pa.Table:
        """Computation is known by its kind; the rest of a step, such as waiting for other stages, is communication."""
        count = len(self.steps)
        phases = {name: np.zeros(count, np.int64) for name in PHASE_NAMES}
        left = self.lengths.copy()
        for kind, phase in _PHASES.items():
            chosen = rows[pc.equal(kinds, kind).to_numpy(zero_copy_only=False)]
            sums = np.bincount(self._step[chosen], weights=self._duration[chosen].astype(float), minlength=count)
            taken = np.minimum(np.rint(sums).astype(np.int64), left)
            phases[phase] += taken
            left -= taken
        phases["communication"] += left
        computed = {
            name: np.bincount(self._step[rows[pc.equal(kinds, kind).to_numpy(zero_copy_only=False)]], minlength=count)
            for name, kind in (("forwards", "forward-compute"), ("backwards", "backward-compute"))
        }
        fixed = dict.fromkeys(("fetches", "skipped_updates", "loader_start_ns", "gc_ns"), np.zeros(count, np.int64))
        return parts.build_table(
            "steps",
            {
                "index": np.arange(count),
                "step": self.steps,
                "kind": ["train"] * count,
                "start_ns": self._at,
                "duration_ns": self.lengths,
                **{f"{name}_ns": values for name, values in phases.items()},
                **computed,
                **fixed,
                "optimizer_steps": np.ones(count, np.int64),
                "detailed": np.zeros(count, bool),
                "markers": np.ones(count, bool),
            },
        )

    def _build_slices(self, rows: Ints, kinds: pa.Array) -> pa.Table:
        names = kinds.to_pylist()
        track = _number_tracks(kinds)
        start, duration = self._start[rows], self._duration[rows]
        return parts.build_table(
            "slices",
            {
                "id": np.arange(len(rows)),
                "track": [track[name] for name in names],
                "depth": _stack(np.array([track[name] for name in names]), start, start + duration),
                "start_ns": start,
                "duration_ns": duration,
                "name": names,
                "category": ["annotation" if name in _COMPUTED else "communication" for name in names],
                "step": self._numbers["step"][rows],
            },
        )


def _as_stream(build: Any) -> Any:
    return lambda: iter(build().to_batches())


def _number_tracks(kinds: pa.Array) -> dict[str, int]:
    """All computation is one row of the timeline; each kind of communication has its own."""
    others = sorted(name for name in pc.unique(kinds).to_pylist() if name not in _COMPUTED)
    return dict.fromkeys(_COMPUTED, 0) | {name: number for number, name in enumerate(others, 1)}


def _build_tracks(kinds: pa.Array) -> pa.Table:
    names = {number: name for name, number in _number_tracks(kinds).items()} | {0: "computation"}
    rows = [
        {"track": number, "kind": "annotation", "name": name, "process": "job", "order": number, "unit": ""}
        for number, name in sorted(names.items())
    ]
    return parts.build_table_from_rows("tracks", rows)


def _stack(track: Ints, start: Ints, end: Ints) -> Ints:
    """Return a depth for each slice, sorted by start: the lowest of its track that is free."""
    free: dict[int, list[int]] = {}
    depths = np.zeros(len(track), np.int64)
    for at, (row, begin, stop) in enumerate(zip(track.tolist(), start.tolist(), end.tolist(), strict=True)):
        lanes = free.setdefault(row, [])
        depth = next((number for number, until in enumerate(lanes) if until <= begin), len(lanes))
        lanes[depth : depth + 1] = [stop]
        depths[at] = depth
    return depths


FORMAT = JobFormat()
