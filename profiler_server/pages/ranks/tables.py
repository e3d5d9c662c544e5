"""The tables of ranks and of collectives. The table of ranks can be sorted by any column, and has pages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from profiler_server.facts.job import Handover, RankComparison, RankVerdict, Slow
from profiler_server.facts.machine import DeviceTimes
from profiler_server.facts.ranks import CollectiveRow, Collectives, Compared, RankFigures
from profiler_server.format import (
    ABSENT,
    format_bytes,
    format_change,
    format_count,
    format_duration,
    format_share,
)

ROWS_PER_PAGE = 128
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


Key = Callable[[RankFigures], float | str | tuple[float, float]]
KEYS: Mapping[str, Key] = {
    "rank": lambda rank: rank.rank,
    "host": lambda rank: rank.host,
    "steps": lambda rank: rank.steps,
    "step": lambda rank: rank.step_ns,
    "own": lambda rank: rank.own_ns,
    "data_wait": lambda rank: rank.phases_ns.get("data_wait", 0.0),
    "communication": lambda rank: rank.phases_ns.get("communication", 0.0),
}
DEVICE_KEYS: Mapping[str, Callable[[DeviceTimes], int]] = {
    "computation": lambda device: device.computation_ns,
    "exposed": lambda device: device.exposed_communication_ns,
    "idle": lambda device: device.idle_ns,
}
"""Device times by sort column. The table shows shares, because times of several detailed steps cannot be compared with
the mean step."""


@dataclass(frozen=True)
class RankRow:
    """One rank, in figures of its mean step. `own_frac` is its own work divided by the longest own work of all ranks.
    `behind` is its own work less the median own work of the other ranks, as a share of the step.

    `blame_ns` is the most by which the mean step would shorten if only this rank were in time. `last_frac` is the share
    of steps in which this rank came last. Both are None if unknown. `device` has shares of the time of its device by
    sort column.
    """

    figures: RankFigures
    own_ns: float
    own_frac: float
    behind: str
    blame_ns: float | None
    last_frac: float | None
    device: Mapping[str, float | None]
    is_slowest: bool
    is_behind: bool


@dataclass(frozen=True)
class RankTable:
    """A table of ranks. `sort` is the sort column, with a dash before it for descending order.

    `has_hosts`, `has_waits` and `has_device` are True if these columns are shown. `page` is one of `pages`, counted
    from 1. `total` is the number of ranks on all pages."""

    rows: tuple[RankRow, ...]
    sort: str
    has_hosts: bool
    has_device: bool
    has_waits: bool
    problem: str
    page: int
    pages: int
    total: int


@dataclass(frozen=True)
class Order:
    """The ranks on the requested page, sorted. `problem` is a sentence on an unknown sort column, "" if it is known."""

    shown: tuple[RankFigures, ...]
    sort: str
    problem: str
    page: int
    pages: int
    total: int


def order_ranks(
    ranks: Sequence[RankFigures], verdict: RankVerdict, devices: Mapping[int, DeviceTimes], query: Mapping[str, str]
) -> Order:
    """Return the ranks of the page that `query` (of the URL) asks for, sorted.

    If the ranks fill several pages, the ranks for which the others wait come first by default. An unknown sort column
    is reported in `problem`, and the default order is used.
    """
    sort, problem = query.get("sort", ""), ""
    name = sort.removeprefix("-")
    known = (*KEYS, "blame", *DEVICE_KEYS)
    if name and name not in known:
        problem = f"There is no column “{name[:40]}” to sort by; there are: {', '.join(known)}."
    if name not in known:
        sort = "-blame" if len(ranks) > ROWS_PER_PAGE else "rank"
    key = _find_key(sort.removeprefix("-"), verdict, devices)
    ordered = sorted(sorted(ranks, key=lambda rank: rank.rank), key=key, reverse=sort.startswith("-"))
    pages = max(-(-len(ordered) // ROWS_PER_PAGE), 1)
    page = min(_read_page(query.get("page", "")), pages)
    shown = ordered[(page - 1) * ROWS_PER_PAGE : page * ROWS_PER_PAGE]
    return Order(tuple(shown), sort, problem, page, pages, len(ordered))


def sorts_by_device(query: Mapping[str, str]) -> bool:
    return query.get("sort", "").removeprefix("-") in DEVICE_KEYS


def _find_key(name: str, verdict: RankVerdict, devices: Mapping[int, DeviceTimes]) -> Key:
    if name == "blame":
        blame = {} if verdict.comparison is None else verdict.comparison.blame_ns
        return lambda rank: (blame.get(rank.rank, 0.0), rank.own_ns)
    return KEYS.get(name) or (lambda rank: _measure_share(devices.get(rank.rank), name) or 0.0)


def _measure_share(device: DeviceTimes | None, name: str) -> float | None:
    return DEVICE_KEYS[name](device) / device.total_ns if device is not None and device.total_ns else None


def _read_page(text: str) -> int:
    return max(int(text), 1) if text.isascii() and text.isdigit() and len(text) < 7 else 1


def list_rows(order: Order, ranks: Sequence[RankFigures], found: Compared) -> RankTable:
    own, verdict, devices = found.own_ns, found.verdict, found.devices
    longest = max(own.values(), default=0.0)
    return RankTable(
        rows=tuple(_view(rank, verdict, devices.get(rank.rank), own[rank.rank], longest) for rank in order.shown),
        sort=order.sort,
        has_hosts=len({rank.host for rank in ranks if rank.host}) > 1,
        has_device=bool(devices),
        has_waits=any(rank.phases_ns.get("data_wait") for rank in ranks),
        problem=order.problem,
        page=order.page,
        pages=order.pages,
        total=order.total,
    )


def _view(
    rank: RankFigures, verdict: RankVerdict, device: DeviceTimes | None, own_ns: float, longest: float
) -> RankRow:
    comparison = verdict.comparison
    slowest = comparison is not None and comparison.latest.rank == rank.rank
    return RankRow(
        figures=rank,
        own_ns=own_ns,
        own_frac=own_ns / longest if longest else 0.0,
        behind=_write_behind(rank, own_ns, comparison) if comparison is not None else ABSENT,
        blame_ns=comparison.blame_ns.get(rank.rank) if comparison is not None else None,
        last_frac=comparison.last_frac.get(rank.rank) if comparison is not None else None,
        device={name: _measure_share(device, name) for name in DEVICE_KEYS},
        is_slowest=slowest,
        is_behind=slowest and isinstance(verdict, (Slow, Handover)),
    )


def _write_behind(rank: RankFigures, own_ns: float, comparison: RankComparison) -> str:
    """Return a rank's own work less the median own work of the other ranks, as a share of the step; n/a if unknown.

    Every rank is compared with one and the same median: the one that the sentences on the slowest rank use.
    """
    if not rank.steps or not comparison.step_ns:
        return ABSENT
    if rank.rank == comparison.latest.rank:
        return format_change(comparison.latest.late_frac)
    return format_change((own_ns - comparison.latest.others_ns) / comparison.step_ns)


@dataclass(frozen=True)
class CollectiveLine:
    """One collective: of one rank, with sums over its calls; or of `ranks` ranks together, with means per call and
    median bandwidths.

    `rank` is the single rank, or the rank that came last most often, None if unknown. `wait_frac` is the wait divided
    by the own time (the whole call as the rank saw it), for the bar.
    """

    rank: int | None
    ranks: str
    name: str
    count: str
    own: str
    transfer: str
    wait: str
    wait_frac: float
    late: str
    bytes: str
    algorithm: str
    bandwidth: str


@dataclass(frozen=True)
class CollectiveTable:
    """The collectives: `sums` over all ranks, `rows` by rank. If `in_windows`, only detailed windows recorded calls."""

    sums: tuple[CollectiveLine, ...]
    rows: tuple[CollectiveLine, ...]
    has_bytes: bool
    note: str
    in_windows: bool


def view_collectives(found: Collectives) -> CollectiveTable | None:
    """Return the tables of collectives; None if no collective was recorded.

    Lines over all ranks are sorted by total time, longest first. Of the lines of single ranks, those come first whose
    rank came last most often; lines that are alike in that are sorted by name and rank.
    """
    if not found.rows:
        return None
    rows = sorted(found.rows, key=lambda row: (-row.late, row.name, row.rank))
    by_name: dict[str, list[CollectiveRow]] = {}
    for row in rows:
        by_name.setdefault(row.name, []).append(row)
    longest = sorted(by_name, key=lambda name: (-sum(row.total_ns for row in by_name[name]), name))
    return CollectiveTable(
        sums=tuple(_view_calls(by_name[name]) for name in longest[:MOST_NAMES] if len({row.rank for row in rows}) > 1),
        rows=tuple(_view_calls([row], is_one=True) for row in rows[:MOST_ROWS]),
        has_bytes=any(row.bytes is not None for row in rows),
        note=_describe(found),
        in_windows=found.in_windows,
    )


def _view_calls(rows: Sequence[CollectiveRow], is_one: bool = False) -> CollectiveLine:
    """Return the line of a collective: of one rank if `is_one`, else of all ranks, with the greatest count of any."""
    last = max(rows, key=lambda row: row.late)
    counts = [row.count for row in rows]
    sized = sum(row.count for row in rows if row.bytes is not None)
    matched = sum(row.matched for row in rows)
    own_ns = _divide([row.total_ns for row in rows], 1 if is_one else max(sum(counts), 1)) or 0.0
    wait_ns = _divide([row.wait_ns for row in rows], 1 if is_one else matched)
    return CollectiveLine(
        rank=last.rank if is_one or last.late else None,
        ranks=format_count(len(rows)),
        name=last.name,
        count=format_count(max(counts)),
        own=format_duration(own_ns),
        transfer=format_duration(_divide([row.transfer_ns for row in rows], 1 if is_one else matched)),
        wait=format_duration(wait_ns),
        wait_frac=wait_ns / own_ns if wait_ns is not None and own_ns else 0.0,
        late=f"{format_count(last.late)} of {format_count(last.matched)}" if last.matched else ABSENT,
        bytes=format_bytes(_divide([row.bytes for row in rows], 1 if is_one else sized)),
        algorithm=_format_speed(row.algorithm_bytes_per_s for row in rows),
        bandwidth=_format_speed(row.bus_bytes_per_s for row in rows),
    )


def _divide(values: Sequence[int | None], by: int) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / by if known and by else None


def _format_speed(bytes_per_s: Iterable[float | None]) -> str:
    known = [speed for speed in bytes_per_s if speed is not None]
    return f"{format_bytes(median(known))}/s" if known else ABSENT


def _describe(found: Collectives) -> str:
    total, paired = sum(row.count for row in found.rows), sum(row.matched for row in found.rows)
    text = _CLOCKS[found.clock]
    if found.clock == "aligned":
        text += f" After that the ranks leave them within {format_duration(found.clock_residual_ns)} of the median rank in 95 % of the calls."
    if not paired:
        return (
            "Own time includes waiting for the other ranks. Without their traces the wait is not known, so the bandwidths "
            "are lower bounds."
        )
    if paired < total:
        share = format_share((total - paired) / total)
        text += (
            f" For {share} of the calls some rank has no record, so transfer, wait and the last rank are not known. A rank "
            "that need not wait records none, and ranks may have recorded other steps."
        )
    if len(found.rows) > MOST_ROWS:
        text += f" Of {format_count(len(found.rows))} rows, the {MOST_ROWS} whose rank came last most often are shown."
    return text
