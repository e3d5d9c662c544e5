"""The collectives of each rank: own time, the transfer that every rank needs, and waiting for the last one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from profiler_server.analysis.ranks.collectives import CollectiveRow, CollectiveTotal, sum_by_name
from profiler_server.analysis.ranks.matching import Matched
from profiler_server.format import ABSENT, format_bytes, format_count, format_duration, format_share

MOST_ROWS = 400
MOST_NAMES = 50
_CLOCKS = {
    "one": "Own time is the collective as this rank saw it; the transfer begins when the last rank has come; what lies "
    "before that is waiting.",
    "aligned": "Own time is the collective as this rank saw it; the transfer begins when the last rank has come; what lies "
    "before that is waiting. The clocks of the ranks differ, and were aligned by the collectives that they leave together.",
    "unknown": "Own time is the collective as this rank saw it; the transfer is the shortest own time of that call over "
    "the ranks; the rest is waiting. The clocks of the ranks cannot be compared: the rank whose own time is the shortest "
    "is taken for the last.",
}


@dataclass(frozen=True)
class CollectiveLine:
    """One collective of one rank. `wait_frac` is the part of its own time that it waited, for the bar."""

    rank: int
    name: str
    count: str
    total: str
    transfer: str
    wait: str
    wait_frac: float
    late: str
    bytes: str
    algorithm: str
    bandwidth: str


@dataclass(frozen=True)
class CollectiveSum:
    """One collective over all ranks; times are of a call, bandwidths the median of the ranks."""

    name: str
    ranks: str
    count: str
    mean: str
    transfer: str
    wait: str
    wait_frac: float
    last: int | None
    late: str
    bytes: str
    algorithm: str
    bandwidth: str


@dataclass(frozen=True)
class CollectiveTable:
    """`in_windows` says that the calls were seen in detailed windows only."""

    sums: tuple[CollectiveSum, ...]
    rows: tuple[CollectiveLine, ...]
    has_bytes: bool
    note: str
    in_windows: bool


def view_collectives(
    rows: Sequence[CollectiveRow], matched: Matched, in_windows: bool = False
) -> CollectiveTable | None:
    """Lay the collectives out, None where none were recorded."""
    if not rows:
        return None
    ordered = sorted(rows, key=lambda row: (row.name, row.rank))
    totals = sum_by_name(rows)
    return CollectiveTable(
        sums=tuple(_view_total(total) for total in totals[:MOST_NAMES]) if len({row.rank for row in rows}) > 1 else (),
        rows=tuple(_view(row) for row in ordered[:MOST_ROWS]),
        has_bytes=any(row.bytes is not None for row in rows),
        note=_describe(rows, matched),
        in_windows=in_windows,
    )


def _view_total(total: CollectiveTotal) -> CollectiveSum:
    return CollectiveSum(
        name=total.name,
        ranks=format_count(total.ranks),
        count=format_count(total.count),
        mean=format_duration(total.mean_ns),
        transfer=format_duration(total.transfer_ns),
        wait=format_duration(total.wait_ns),
        wait_frac=total.wait_ns / total.mean_ns if total.wait_ns is not None and total.mean_ns else 0.0,
        last=total.last if total.late else None,
        late=f"{format_count(total.late)} of {format_count(total.matched)}",
        bytes=format_bytes(total.bytes),
        algorithm=_format_speed(total.algorithm_bytes_per_s),
        bandwidth=_format_speed(total.bus_bytes_per_s),
    )


def _view(row: CollectiveRow) -> CollectiveLine:
    return CollectiveLine(
        rank=row.rank,
        name=row.name,
        count=format_count(row.count),
        total=format_duration(row.total_ns),
        transfer=format_duration(row.transfer_ns),
        wait=format_duration(row.wait_ns),
        wait_frac=row.wait_ns / row.total_ns if row.wait_ns is not None and row.total_ns else 0.0,
        late=f"{format_count(row.late)} of {format_count(row.matched)}" if row.matched else ABSENT,
        bytes=format_bytes(row.bytes),
        algorithm=_format_speed(row.algorithm_bytes_per_s),
        bandwidth=_format_speed(row.bus_bytes_per_s),
    )


def _format_speed(bytes_per_s: float | None) -> str:
    return ABSENT if bytes_per_s is None else f"{format_bytes(bytes_per_s)}/s"


def _describe(rows: Sequence[CollectiveRow], matched: Matched) -> str:
    total, paired = sum(row.count for row in rows), sum(row.matched for row in rows)
    text = _CLOCKS[matched.clock]
    if matched.clock == "aligned":
        text += f" After that the ranks leave them within {format_duration(matched.clock_residual_ns)} of the median rank in 95 % of the calls."
    if not paired:
        return (
            "Own time is the collective as this rank saw it, waiting for the others included: without their traces the "
            "bandwidths are the least that they can be."
        )
    if paired < total:
        share = format_share((total - paired) / total)
        text += (
            f" For {share} of the calls not every rank has one, so that transfer, wait and who came last are not known: "
            "a rank that need not wait, such as the last one, records none, and ranks may have recorded other steps."
        )
    if len(rows) > MOST_ROWS:
        text += f" The first {MOST_ROWS} of {format_count(len(rows))} rows are shown."
    return text
