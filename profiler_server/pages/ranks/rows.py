"""The table of ranks, sorted by any column."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from profiler_server.analysis.ranks.ranks import RankSummary
from profiler_server.analysis.ranks.stragglers import Straggler
from profiler_server.analysis.results import DeviceTimes
from profiler_server.format import ABSENT, format_change, format_count, format_duration, shorten_middle

Key = Callable[[RankSummary], float | str]
KEYS: Mapping[str, Key] = {
    "rank": lambda rank: rank.rank,
    "host": lambda rank: rank.host,
    "steps": lambda rank: rank.steps,
    "step": lambda rank: rank.step_ns,
    "own": lambda rank: rank.own_ns,
    "data_wait": lambda rank: rank.phases_ns.get("data_wait", 0.0),
    "communication": lambda rank: rank.phases_ns.get("communication", 0.0),
}
DEVICE_KEYS: Mapping[str, str] = {
    "computation": "computation_ns",
    "exposed": "exposed_communication_ns",
    "idle": "idle_ns",
}


@dataclass(frozen=True)
class RankRow:
    """One rank. `own_frac` is its own time against the longest, for the bar; `behind` that against the others' median."""

    rank: int
    host: str
    steps: str
    step: str
    own: str
    own_frac: float
    behind: str
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
    """`sort` is the column in effect, with a dash for falling; hosts and device columns are shown where they tell something."""

    rows: tuple[RankRow, ...]
    sort: str
    has_hosts: bool
    has_device: bool
    problem: str


def list_rows(
    ranks: Sequence[RankSummary], straggler: Straggler | None, devices: Mapping[int, DeviceTimes], sort: str
) -> RankTable:
    """List the ranks; an unknown column is reported, and the order is that of the ranks."""
    name, problem = sort.removeprefix("-"), ""
    known = (*KEYS, *DEVICE_KEYS)
    if name and name not in known:
        problem = f"There is no column “{name[:40]}” to sort by; there are: {', '.join(known)}."
    if name not in known:
        sort, name = "rank", "rank"
    key = KEYS.get(name) or (lambda rank: getattr(devices.get(rank.rank), DEVICE_KEYS[name], -1))
    ordered = sorted(sorted(ranks, key=lambda rank: rank.rank), key=key, reverse=sort.startswith("-"))
    longest = max((rank.own_ns for rank in ranks), default=0.0)
    return RankTable(
        rows=tuple(_view(rank, straggler, devices.get(rank.rank), longest) for rank in ordered),
        sort=sort,
        has_hosts=len({rank.host for rank in ranks}) > 1,
        has_device=bool(devices),
        problem=problem,
    )


def _view(rank: RankSummary, straggler: Straggler | None, device: DeviceTimes | None, longest: float) -> RankRow:
    slowest = straggler is not None and straggler.rank == rank.rank
    return RankRow(
        rank=rank.rank,
        host=shorten_middle(rank.host, 32),
        steps=format_count(rank.steps),
        step=_write(rank, rank.step_ns),
        own=_write(rank, rank.own_ns),
        own_frac=rank.own_ns / longest if longest else 0.0,
        behind=_write_behind(rank, straggler),
        data_wait=_write(rank, rank.phases_ns.get("data_wait", 0.0)),
        communication=_write(rank, rank.phases_ns.get("communication", 0.0)),
        computation=format_duration(device.computation_ns if device else None),
        exposed=format_duration(device.exposed_communication_ns if device else None),
        idle=format_duration(device.idle_ns if device else None),
        state=rank.state,
        is_slowest=slowest,
        is_behind=slowest and straggler is not None and straggler.is_slow,
        reason=rank.reason,
    )


def _write(rank: RankSummary, value_ns: float) -> str:
    return format_duration(value_ns) if rank.steps else ABSENT


def _write_behind(rank: RankSummary, straggler: Straggler | None) -> str:
    """Return how far a rank is from the median of the others of the slowest, which is one yardstick for all."""
    if straggler is None or not rank.steps or not straggler.others_ns:
        return ""
    return format_change(rank.own_ns / straggler.others_ns - 1)
