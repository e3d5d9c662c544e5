"""One trace in the accounting of four tools, a check that our categories sum to the whole, and what the trace lacks.

The methods of the other tools come from their code, and were checked against their figures for real traces:
torch-tb-profiler 0.4.3, HTA 0.5, TraceLens.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow.compute as pc

from collector.format.intervals import Intervals, Ints, Mask, unite
from collector.format.phases import PHASE_NAMES
from collector.format.run import RankRun
from profiler_server.analysis.accounting.categories import CATEGORIES, LOADER, STEP, list_categories, unite_each
from profiler_server.analysis.device.device import (
    COLLECTIVE,
    KERNEL,
    DeviceWork,
    account_times,
    read_device_work,
    unite_work,
)
from profiler_server.analysis.device.slices import Texts, read_slices, read_steps, read_thread_tracks, to_ints
from profiler_server.analysis.tables import choose, read_rows
from profiler_server.derive.derived import derived

_DRIVER = re.compile(r"cu[A-Z]")
_COUNTED = re.compile(r"(nccl|gloo):(broadcast|reduce|all_reduce|all_gather|reduce_scatter)$")
"""The collectives that torch-tb-profiler recognizes by name."""
_COLUMNS = ("track", "start_ns", "duration_ns", "name", "category", "operator")


@dataclass(frozen=True)
class DeviceAccount:
    """Device times in ns in the accounting of one tool; None for a figure that the tool does not report."""

    tool: str
    total: int
    computation: int
    communication: int
    exposed_communication: int | None
    exposed_copy: int | None
    busy: int
    idle: int
    events: int


@dataclass(frozen=True)
class StepAccount:
    """The time of each category in ns, summed over all steps, in the accounting of one tool. `total` is the time of the
    steps."""

    tool: str
    total: int
    parts: dict[str, int]


@dataclass(frozen=True)
class Conserved:
    """A whole and the sum of its parts. A difference between the two is an error."""

    what: str
    whole: int
    parts: int
    unit: str = "ns"

    @property
    def holds(self) -> bool:
        return self.whole == self.parts


@dataclass(frozen=True)
class EventCount:
    """The number of events with one outcome. `must_be_zero` marks an outcome that is a loss."""

    name: str
    count: int
    meaning: str
    must_be_zero: bool = False


@dataclass(frozen=True)
class Accounts:
    """The accounts of a rank's trace. `devices` and `steps` start with our account.

    `devices` is empty without device work, and `steps` without steps that were recorded in detail.
    """

    devices: tuple[DeviceAccount, ...]
    steps: tuple[StepAccount, ...]
    checks: tuple[Conserved, ...]
    events: tuple[EventCount, ...]
    completeness: str = ""
    """The result of the completeness check: `complete`, or the gaps. Empty if the trace was not checked."""


@derived(file="accounts")
def account_trace(rank: RankRun) -> Accounts:
    """Account a rank's trace as each tool does, and compare wholes with sums. Raises as `RankRun.table` does."""
    steps = _list_step_accounts(rank)
    work = read_device_work(rank)
    devices = _list_device_accounts(work, rank) if work is not None and len(work) else ()
    return Accounts(
        devices,
        steps,
        tuple(_check_conservation(rank, devices, steps)),
        _count_events(rank, work),
        read_completeness(rank) or "",
    )


def _list_device_accounts(work: DeviceWork, rank: RankRun) -> tuple[DeviceAccount, ...]:
    ours = _describe("Stepscope", work)
    others = []
    kept = _keep_like_hta(work, rank)
    if len(kept):
        others.append(_count_like_hta(kept, rank.manifest.started_unix_ns))
    if work.linked.all():
        others.append(replace(ours, tool="TraceLens"))
    elif work.linked.any():
        others.append(_describe("TraceLens", work.pick(work.linked)))
    return (ours, *others)


def _list_step_accounts(rank: RankRun) -> tuple[StepAccount, ...]:
    ours = list_categories(rank)
    found = _find_like_torch_tb(rank)
    if ours is None or found is None or not len(ours["other"]):
        return ()
    starts, ends = read_steps(rank)
    theirs = walk_restarting(unite_each(*found), starts, ends)
    total = int((ends - starts).sum())
    return (
        StepAccount("Stepscope", total, {name: int(ours[name].sum()) for name in CATEGORIES}),
        StepAccount("torch-tb-profiler", total, theirs),
    )


def _check_conservation(
    rank: RankRun, devices: tuple[DeviceAccount, ...], steps: tuple[StepAccount, ...]
) -> Iterator[Conserved]:
    for step in steps[:1]:
        yield Conserved(f"Categories of the steps, {step.tool}", step.total, sum(step.parts.values()))
    for device in devices[:1]:
        exposed = (device.exposed_communication or 0) + (device.exposed_copy or 0)
        yield Conserved("Accounts of the device", device.total, device.computation + exposed + device.idle)
    columns = ("duration_ns", *(f"{name}_ns" for name in PHASE_NAMES))
    rows = choose(rank.table("steps", (*columns, "kind")), "kind", "train")
    whole, *phases = (int(pc.sum(rows[name]).as_py() or 0) for name in columns)
    yield Conserved("Phases of the steps", whole, sum(phases))
    counted = rank.manifest.facts.get("events")
    if isinstance(counted, dict) and isinstance(counted.get("slices"), int):
        yield Conserved("Slices of the file", counted["slices"], rank.count_rows("slices"), "events")


def _count_events(rank: RankRun, work: DeviceWork | None) -> tuple[EventCount, ...]:
    given = rank.manifest.facts.get("events")
    counts: dict[str, Any] = given if isinstance(given, dict) else {}
    found = [
        EventCount(label, counts[name], meaning, must_be_zero)
        for name, label, meaning, must_be_zero in _FATES
        if isinstance(counts.get(name), int)
    ]
    clipped = _count_clipped(work, rank) if work is not None else 0
    unlinked = int((~work.linked).sum()) if work is not None else 0
    return (
        *found,
        EventCount("Dropped", rank.manifest.events_lost, "could not be read, or begin without an end", True),
        EventCount(
            "Clipped", clipped, "pieces of device work that cross the edge of a step; each step counts its part"
        ),
        EventCount(
            "Unlinked", unlinked, "pieces of device work whose launch the trace does not have; they are counted"
        ),
    )


_FATES = (
    ("slices", "Slices", "events with a length: operators, kernels, calls, frames", False),
    ("counters", "Counter values", "kept as counters of the timeline", False),
    ("memory", "Memory events", "kept as allocations", False),
    ("flows", "Flow ends", "arrows; links are made from the correlation ids that they repeat", False),
    ("metadata", "Labels", "names of processes and threads", False),
    ("profiler_spans", "Profiler's own spans", "say how long the recording took and are no work", False),
    ("duplicates", "Listed twice", "events that are equal to an earlier one in everything; they count once", False),
    ("unmeasured", "Without a length", "events without a length, or with one below 0; they count as 0 ns", False),
    ("args_dropped", "Arguments left out", "events whose arguments were too large to keep; their times are kept", True),
    ("rounded", "Rounded", "events with a time finer than a nanosecond, taken to the nearest one", False),
    ("repaired_chunks", "Mended pieces", "pieces of the file that were not valid JSON and were mended", False),
)


def walk_restarting(busy: dict[str, Intervals], starts: Ints, ends: Ints) -> dict[str, int]:
    """Return the time of each category in ns, as torch-tb-profiler counts.

    Each category gets the time that no category before it has. When categories fill all steps, the next category counts
    from whole steps again.
    """
    steps = unite(starts, ends)
    left = Intervals(starts[:0], ends[:0])
    parts: dict[str, int] = {}
    for name, intervals in busy.items():
        left = left if left.length_ns else steps
        parts[name] = (left & intervals).length_ns
        left = left - intervals
    parts["other"] = left.length_ns
    return parts


def _describe(tool: str, work: DeviceWork) -> DeviceAccount:
    times = account_times(work)
    communication = unite_work(work, work.kind == COLLECTIVE).length_ns
    return DeviceAccount(
        tool,
        times.total_ns,
        times.computation_ns,
        communication,
        times.exposed_communication_ns,
        times.exposed_copy_ns,
        times.total_ns - times.idle_ns,
        times.idle_ns,
        len(work),
    )


def _keep_like_hta(work: DeviceWork, rank: RankRun) -> DeviceWork:
    """Return the work that HTA keeps. With two or more step markers, that is the work launched before the last marker."""
    steps = choose(read_rows(rank, "steps", ("start_ns", "kind", "markers")), "kind", "train")
    marked = steps.filter(steps["markers"])["start_ns"].to_pylist()
    if len(marked) < 2:
        return work
    return work.pick((work.launch_ns >= 0) & (work.launch_ns < max(marked)))


def _count_like_hta(work: DeviceWork, epoch_ns: int) -> DeviceAccount:
    """Account times as HTA's temporal breakdown does: memset is not computation, and times are whole microseconds. HTA
    rounds starts up and ends down."""
    starts = -(-(work.start_ns + epoch_ns) // 1000) * 1000
    ends = np.maximum((work.end_ns + epoch_ns) // 1000 * 1000, starts)
    on = work.kind == KERNEL
    computation = unite(starts[on], ends[on]).length_ns
    busy = unite(starts, ends).length_ns
    communication = unite(starts[work.kind == COLLECTIVE], ends[work.kind == COLLECTIVE]).length_ns
    total = int(ends.max() - starts.min())
    return DeviceAccount("HTA", total, computation, communication, None, None, busy, total - busy, len(work))


def _find_like_torch_tb(rank: RankRun) -> tuple[Ints, Ints, dict[str, Mask]] | None:
    """Return start and end of every slice, and a mask of slices for each category; None without slices.

    torch-tb-profiler has no Runtime category for driver calls. Kernels belong to a collective only if their operator
    has one of five names. Host spans with these names are Communication, with or without kernels.
    """
    data = read_slices(rank, _COLUMNS)
    if data is None:
        return None
    kinds, names = Texts(data["category"]), Texts(data["name"])
    owned = Texts(data["operator"]).match(_COUNTED.match)
    on_thread = np.isin(data["track"].to_numpy(), read_thread_tracks(rank))
    collective = kinds.match("communication".__eq__) & ~on_thread
    host = on_thread & kinds.match(("operator", "annotation", "communication").__contains__)
    host &= ~names.match(STEP.match)
    loader, counted = names.match(LOADER.match), names.match(_COUNTED.match)
    masks = {
        "kernel": kinds.match("kernel".__eq__) | (collective & ~owned),
        "memcpy": kinds.match("memcpy".__eq__),
        "memset": kinds.match("memset".__eq__),
        "communication": (collective & owned) | (host & counted),
        "runtime": kinds.match("runtime".__eq__) & ~names.match(_DRIVER.match),
        "dataloader": host & loader,
        "cpu_exec": host & ~loader & ~counted,
    }
    starts = to_ints(data["start_ns"])
    return starts, starts + to_ints(data["duration_ns"]), masks


def _count_clipped(work: DeviceWork, rank: RankRun) -> int:
    starts, ends = read_steps(rank)
    edges = np.unique(np.concatenate([starts, ends]))
    first = np.searchsorted(edges, work.start_ns, side="right")
    last = np.searchsorted(edges, work.end_ns, side="left")
    return int((last > first).sum())


COMPLETE = "complete"
_LONGEST = 1000


def read_completeness(rank: RankRun) -> str | None:
    """Return the result of the completeness check: `complete`, or a text on gaps and impossible values, cut at 1,000
    characters.

    None if the trace was not checked. Raises as `manifest` does.
    """
    found = rank.manifest.facts.get("completeness")
    return found[:_LONGEST] if isinstance(found, str) and found else None


def say_completeness(found: str) -> str:
    if found == COMPLETE:
        return "complete: every launch has its work, every event is there once and has its length"
    return f"not complete: {found}"
