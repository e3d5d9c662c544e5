"""The table of ranks: sorted by any column, those of one host alone, a part of very many at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from profiler_server.analysis.ranks.ranks import RankSummary
from profiler_server.analysis.ranks.together import put_together
from profiler_server.facts.job import Handover, Pause, RankComparison, RankVerdict, Slow
from profiler_server.facts.machine import DeviceTimes
from profiler_server.format import ABSENT, format_change, format_count, format_duration, format_share, shorten_middle

ROWS_PER_PAGE = 128
Key = Callable[[RankSummary], float | str | tuple[float, float]]
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
"""Shown as shares: windows of several steps are no figures to stand beside those of a mean step."""


@dataclass(frozen=True)
class RankRow:
    """One rank. `own_frac` is its own time against the longest, for the bar; `behind` how much longer than the others' median it is,
    as a share of the step.

    `blame` is how much later than the second last it came in the mean step, `last` in how many of the steps it was last.
    """

    rank: int
    host: str
    steps: str
    step: str
    own: str
    own_frac: float
    behind: str
    blame: str
    last: str
    data_wait: str
    communication: str
    computation: str
    exposed: str
    idle: str
    state: str
    is_slowest: bool
    is_behind: bool
    reason: str


@dataclass(frozen=True)
class RankTable:
    """`sort` is the column in effect, with a dash for falling; hosts, waits for data and device columns are shown where they tell something.

    `host` is the one whose ranks alone are shown, "" for all; `page` of `pages` is shown of `total` ranks.
    """

    rows: tuple[RankRow, ...]
    sort: str
    has_hosts: bool
    has_device: bool
    has_waits: bool
    problem: str
    host: str
    page: int
    pages: int
    total: int


@dataclass(frozen=True)
class Order:
    """Which ranks are shown, in their order, as the query asks for it."""

    shown: tuple[RankSummary, ...]
    sort: str
    problem: str
    host: str
    page: int
    pages: int
    total: int


def order_ranks(
    ranks: Sequence[RankSummary], verdict: RankVerdict, devices: Mapping[int, DeviceTimes], query: Mapping[str, str]
) -> Order:
    """Choose and sort the ranks. Of very many, those come first that hold the others up, unless it is asked otherwise.

    An unknown column is reported, and the order is the usual one.
    """
    sort, problem = query.get("sort", ""), ""
    name = sort.removeprefix("-")
    known = (*KEYS, "blame", *DEVICE_KEYS)
    if name and name not in known:
        problem = f"There is no column “{name[:40]}” to sort by; there are: {', '.join(known)}."
    if name not in known:
        sort = "-blame" if len(ranks) > ROWS_PER_PAGE else "rank"
    host = query.get("host", "")
    of_host = [rank for rank in ranks if rank.host == host] if host else list(ranks)
    if not of_host:
        problem, host, of_host = f"No rank is on a host of the name “{host[:40]}”.", "", list(ranks)
    key = _find_key(sort.removeprefix("-"), verdict, devices)
    ordered = sorted(sorted(of_host, key=lambda rank: rank.rank), key=key, reverse=sort.startswith("-"))
    pages = max(-(-len(ordered) // ROWS_PER_PAGE), 1)
    page = min(_read_page(query.get("page", "")), pages)
    shown = ordered[(page - 1) * ROWS_PER_PAGE : page * ROWS_PER_PAGE]
    return Order(tuple(shown), sort, problem, host, page, pages, len(ordered))


def sorts_by_device(query: Mapping[str, str]) -> bool:
    return query.get("sort", "").removeprefix("-") in DEVICE_KEYS


def list_blame(verdict: RankVerdict) -> Mapping[int, float]:
    return {} if verdict.comparison is None else verdict.comparison.blame_ns


def _find_key(name: str, verdict: RankVerdict, devices: Mapping[int, DeviceTimes]) -> Key:
    if name == "blame":
        blame = list_blame(verdict)
        return lambda rank: (blame.get(rank.rank, 0.0), rank.own_ns)
    return KEYS.get(name) or (lambda rank: _measure_share(devices.get(rank.rank), name) or 0.0)


def _measure_share(device: DeviceTimes | None, name: str) -> float | None:
    """Return what share of the time from the first to the last work of a device goes to something."""
    return DEVICE_KEYS[name](device) / device.total_ns if device is not None and device.total_ns else None


def _read_page(text: str) -> int:
    return max(int(text), 1) if text.isascii() and text.isdigit() and len(text) < 7 else 1


def list_rows(
    order: Order, ranks: Sequence[RankSummary], verdict: RankVerdict, devices: Mapping[int, DeviceTimes]
) -> RankTable:
    """List the ranks that are shown."""
    own = measure_own(ranks, verdict.comparison.pause if verdict.comparison is not None else None)
    longest = max(own.values(), default=0.0)
    return RankTable(
        rows=tuple(_view(rank, verdict, devices.get(rank.rank), own[rank.rank], longest) for rank in order.shown),
        sort=order.sort,
        has_hosts=len({rank.host for rank in ranks if rank.host}) > 1,
        has_device=bool(devices),
        has_waits=any(rank.phases_ns.get("data_wait") for rank in ranks),
        problem=order.problem,
        host=order.host,
        page=order.page,
        pages=order.pages,
        total=order.total,
    )


@dataclass(frozen=True)
class HostRow:
    """The ranks of one host together. `blame_frac` is against the host with the most, for the bar."""

    host: str
    ranks: str
    step: str
    own: str
    blame: str
    blame_frac: float
    worst: int


MOST_HOSTS = 32


def list_hosts(ranks: Sequence[RankSummary], verdict: RankVerdict) -> tuple[HostRow, ...]:
    """List the hosts by what their ranks cost the others, the first MOST_HOSTS; nothing for one host."""
    by_host: dict[str, list[RankSummary]] = {}
    for rank in ranks:
        if rank.steps:
            by_host.setdefault(rank.host, []).append(rank)
    if len(by_host) < 2:
        return ()
    blame = list_blame(verdict)
    totals = {host: sum(blame.get(rank.rank, 0.0) for rank in members) for host, members in by_host.items()}
    most = max(totals.values())
    chosen = sorted(by_host, key=lambda host: (-totals[host], host))[:MOST_HOSTS]
    return tuple(_view_host(host, by_host[host], totals[host], most, blame) for host in chosen)


def _view_host(
    host: str, members: Sequence[RankSummary], total: float, most: float, blame: Mapping[int, float]
) -> HostRow:
    worst = max(members, key=lambda rank: (blame.get(rank.rank, 0.0), rank.own_ns))
    return HostRow(
        host=host,
        ranks=format_count(len(members)),
        step=format_duration(sum(rank.step_ns for rank in members) / len(members)),
        own=format_duration(sum(rank.own_ns for rank in members) / len(members)),
        blame=format_duration(total),
        blame_frac=total / most if most else 0.0,
        worst=worst.rank,
    )


def measure_own(ranks: Sequence[RankSummary], pause: Pause | None = None) -> dict[int, float]:
    """Return what each rank works in the mean step, with what it does between steps and others do not.

    Steps with a wait that is told by itself are left out.
    """
    if pause is not None:
        together = put_together({rank.rank: rank.together for rank in ranks}).drop(pause.steps)
        own = together.own_ns.mean(axis=1).tolist() if len(together.step) else []
        return {rank.rank: rank.own_ns for rank in ranks} | dict(zip(together.ranks, own, strict=False))
    between = {rank.rank: float(rank.together.between_ns.mean()) for rank in ranks if len(rank.together.between_ns)}
    least = min(between.values(), default=0.0)
    return {rank.rank: rank.own_ns + between.get(rank.rank, least) - least for rank in ranks}


def _view(
    rank: RankSummary, verdict: RankVerdict, device: DeviceTimes | None, own_ns: float, longest: float
) -> RankRow:
    comparison = verdict.comparison
    slowest = comparison is not None and comparison.latest.rank == rank.rank
    return RankRow(
        rank=rank.rank,
        host=shorten_middle(rank.host, 32),
        steps=format_count(rank.steps),
        step=_write(rank, rank.step_ns),
        own=_write(rank, own_ns),
        own_frac=own_ns / longest if longest else 0.0,
        behind=_write_behind(rank, own_ns, comparison) if comparison is not None else ABSENT,
        blame=_write_known(comparison.blame_ns if comparison else {}, rank.rank, format_duration),
        last=_write_known(comparison.last_frac if comparison else {}, rank.rank, format_share),
        data_wait=_write(rank, rank.phases_ns.get("data_wait", 0.0)),
        communication=_write(rank, rank.phases_ns.get("communication", 0.0)),
        computation=format_share(_measure_share(device, "computation")),
        exposed=format_share(_measure_share(device, "exposed")),
        idle=format_share(_measure_share(device, "idle")),
        state=rank.state,
        is_slowest=slowest,
        is_behind=slowest and isinstance(verdict, (Slow, Handover)),
        reason=rank.reason,
    )


def _write_known(values: Mapping[int, float], rank: int, write: Callable[[float], str]) -> str:
    return write(values[rank]) if rank in values else ABSENT


def _write(rank: RankSummary, value_ns: float) -> str:
    return format_duration(value_ns) if rank.steps else ABSENT


def _write_behind(rank: RankSummary, own_ns: float, comparison: RankComparison) -> str:
    """Return how far a rank is from the median of the others of the slowest, as a share of the step: one yardstick for
    all, and that of the sentences."""
    if not rank.steps or not comparison.step_ns:
        return ABSENT
    if rank.rank == comparison.latest.rank:
        return format_change(comparison.latest.late_frac)
    return format_change((own_ns - comparison.latest.others_ns) / comparison.step_ns)
