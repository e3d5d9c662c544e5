"""Sum the times of a rank in each stage by kind of time (work, waits, setup), and compare them with its wall time."""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from collector.format.rank import make_frame
from collector.format.schema.errors import TableMissingError
from collector.format.words import STAGES
from collector.notebook.summaries import lay_out

if TYPE_CHECKING:
    import pandas as pd

    from collector.format.run import RankRun

_COLUMNS = ("stage", "replica", "kind", "loader", "duration_ns", "cpu_ns", "items", "bytes")
_KINDS = ("work", "input_wait", "output_wait", "setup", "cleanup")
_SCHEMA = pa.schema(
    [
        ("loader", pa.int32()),
        ("stage", pa.string()),
        ("kind", pa.string()),
        ("replicas", pa.int64()),
        ("count", pa.int64()),
        ("total_ns", pa.int64()),
        ("cpu_ns", pa.int64()),
        ("wall_frac", pa.float64()),
        ("items", pa.int64()),
        ("bytes", pa.int64()),
    ]
)


@dataclass(frozen=True)
class Statistics:
    """Totals of a rank. `wall_ns` is the time from the start of the recording to its end, or to its last heartbeat.
    `steps` is the number of training steps.

    `table` has a row for each loader, stage and kind of time (work, input_wait, output_wait, setup, cleanup), summed
    over the stage's replicas; `wall_frac` is the mean time of a replica as a fraction of the wall time. `loader` is
    null for the script's own stages; `cpu_ns` and `bytes` are null if not measured. If `cpu_ns` was measured for some
    batches only, it is extrapolated to all.
    """

    name: str
    rank: int
    wall_ns: int
    steps: int
    table: pa.Table

    def frame(self) -> pd.DataFrame:
        """Return the table as a pandas DataFrame; nullable integers are Int64."""
        return make_frame(self.table, ("loader", "cpu_ns", "bytes"))

    def __str__(self) -> str:
        lines = [f"{self.name}, rank {self.rank}: {self.wall_ns / 1e9:,.3f} s of wall time, {self.steps:,} steps"]
        if not self.table.num_rows:
            return f"{lines[0]}\nNo stage of a data pipeline was recorded.\n"
        return f"{lines[0]}\n" + lay_out(_HEADER, [_spell(row) for row in self.table.to_pylist()])

    def __repr__(self) -> str:
        return str(self).rstrip("\n")

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


_HEADER = ("stage", "kind", "replicas", "count", "total ms", "cpu ms", "of wall time", "items", "bytes")


def _spell(row: dict[str, Any]) -> tuple[str, ...]:
    stage = row["stage"] if row["loader"] is None else f"{row['stage']}, loader {row['loader']}"
    cpu = "" if row["cpu_ns"] is None else f"{row['cpu_ns'] / 1e6:,.3f}"
    return (
        stage[:60],
        row["kind"],
        f"{row['replicas']:,}",
        f"{row['count']:,}",
        f"{row['total_ns'] / 1e6:,.3f}",
        cpu,
        f"{100 * row['wall_frac']:.1f} %",
        f"{row['items']:,}",
        "" if row["bytes"] is None else f"{row['bytes']:,}",
    )


def sum_statistics(rank: RankRun, name: str) -> Statistics:
    """Sum the recorded times of a rank of the run `name`; a missing table adds none. Raises as `RankRun.table`."""
    manifest = rank.manifest
    ended_ns = manifest.ended_unix_ns or manifest.heartbeat_unix_ns
    wall_ns = max(ended_ns - manifest.started_unix_ns, 0)
    return Statistics(name, rank.rank, wall_ns, _count_steps(rank), _sum_stages(rank, wall_ns))


def _count_steps(rank: RankRun) -> int:
    try:
        return rank.count_steps()
    except TableMissingError:
        return 0


def _sum_stages(rank: RankRun, wall_ns: int) -> pa.Table:
    try:
        rows = rank.table("stages", _COLUMNS)
    except TableMissingError:
        return _SCHEMA.empty_table()
    for name in ("stage", "kind"):
        rows = rows.set_column(rows.schema.get_field_index(name), name, rows[name].cast(pa.string()))
    counted_of_ns = pc.if_else(pc.is_valid(rows["cpu_ns"]), rows["duration_ns"], 0)
    sums = (
        rows.append_column("counted_of_ns", counted_of_ns)
        .group_by(["loader", "stage", "kind"], use_threads=False)
        .aggregate(
            [
                ("replica", "count_distinct"),
                ("duration_ns", "count"),
                *((column, "sum") for column in ("duration_ns", "cpu_ns", "counted_of_ns", "items", "bytes")),
            ]
        )
    )
    replicas = sums["replica_count_distinct"]
    columns = {
        "loader": sums["loader"],
        "stage": sums["stage"],
        "kind": sums["kind"],
        "replicas": replicas,
        "count": sums["duration_ns_count"],
        "total_ns": sums["duration_ns_sum"],
        "cpu_ns": _extend_counted(sums),
        "wall_frac": pc.divide(
            sums["duration_ns_sum"].cast(pa.float64()), pc.multiply(replicas, max(wall_ns, 1)).cast(pa.float64())
        ),
        "items": sums["items_sum"],
        "bytes": sums["bytes_sum"],
    }
    found = pa.table({name: columns[name] for name in _SCHEMA.names}).cast(_SCHEMA)
    order = sorted(range(found.num_rows), key=lambda place: _place(found.slice(place, 1).to_pylist()[0]))
    return found.take(pa.array(order, pa.int64()))


def _extend_counted(sums: pa.Table) -> pa.Array:
    """Return the processor time of each row of sums. If only some of its batches were measured, it is extrapolated."""
    whole, counted_of, counted = (
        sums[f"{name}_sum"].cast(pa.float64()) for name in ("duration_ns", "counted_of_ns", "cpu_ns")
    )
    is_partly = pc.and_(pc.greater(counted_of, 0), pc.less(counted_of, whole))
    return pc.if_else(is_partly, pc.round(pc.divide(pc.multiply(counted, whole), counted_of)), counted)


def _place(row: dict[str, Any]) -> tuple[bool, int, int, str, int]:
    stage, kind = row["stage"], row["kind"]
    known = STAGES.index(stage) if stage in STAGES else len(STAGES)
    kind_place = _KINDS.index(kind) if kind in _KINDS else len(_KINDS)
    return row["loader"] is None, row["loader"] or 0, known, stage, kind_place
