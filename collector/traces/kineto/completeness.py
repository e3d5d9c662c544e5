"""Say whether a trace holds all that it should: what is missing or cannot be true makes its figures too small or too large.

Nothing here changes a figure. Each finding is a clause of one sentence.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from collector.format.schema.manifest import Warn
from collector.format.schema.wording import format_number_of, format_percent
from collector.traces.kineto.classify import Kind
from collector.traces.kineto.clock import Ints
from collector.traces.kineto.collect import Log
from collector.traces.kineto.model import Trace
from collector.traces.kineto.scratch import blocks

COMPLETE = "complete"
_LAUNCH = re.compile(r"(cuda|hip|cu)\w*Launch\w*Kernel|(cuda|cu|hip)GraphLaunch$")
START_GAP_NS = 1_000_000
"""So much later than the first launch the first linked one may be before it counts as a gap."""
EARLY_NS = 100_000
"""So much earlier than its launch call work may seem to start: clocks of host and device are matched to some µs."""
HOLE_FACTOR, LEAST_HOLE_NS = 10, 10**9
"""A hole that is so many times as long as the rest of the trace, and no shorter than this, is no pause of a training."""
_LEAST_WITHOUT_KERNEL_FRAC = 0.01


@dataclass(frozen=True)
class Launches:
    """Calls that launch kernels, in time order: when they began, and which launched work that the trace has."""

    start_ns: Ints
    has_work: np.ndarray


def check_completeness(trace: Trace, timed_ns: int = 0) -> list[str]:
    """Return what is missing or cannot be true, each as a clause; empty for a trace that is complete.

    `timed_ns` is how long its steps took by another clock, 0 where none timed them.
    """
    findings = [
        *_check_launches(_find_launches(trace)),
        *_check_work(trace),
        *_check_clock(trace, timed_ns),
        *_check_log(trace.log),
    ]
    trace.release()
    return findings


def describe_completeness(findings: list[str]) -> str:
    """Return one line: `complete`, or what was found."""
    return "; ".join(findings) or COMPLETE


def warn_of(findings: list[str]) -> list[Warn]:
    if not findings:
        return []
    return [Warn("trace_incomplete", f"This trace is not complete: {describe_completeness(findings)}.")]


def _find_launches(trace: Trace) -> Launches:
    launching = np.array([bool(_LAUNCH.match(name)) for name in trace.names], bool)
    rows = trace.sort(
        (trace.kinds.kind == Kind.RUNTIME) & launching[trace.columns.name] & (trace.columns.correlation > 0)
    )
    used = np.zeros(len(trace.columns), bool)
    for work in trace.find(trace.is_device_work):
        launch = trace.links.launch[work]
        used[launch[launch >= 0]] = True
    return Launches(trace.start_ns[rows], used[rows])


def _check_launches(launches: Launches) -> Iterator[str]:
    count, missing = len(launches.has_work), int((~launches.has_work).sum())
    if count and missing == count:
        yield f"none of {format_number_of(count, 'launch call')} has a kernel, so nothing of the device was recorded"
        return
    if missing > _LEAST_WITHOUT_KERNEL_FRAC * count:
        yield f"{missing:,} of {format_number_of(count, 'launch call')} have no kernel ({format_percent(missing / count)})"
    first = int(np.argmax(launches.has_work)) if count else 0
    gap_ns = int(launches.start_ns[first] - launches.start_ns[0]) if count else 0
    if gap_ns > START_GAP_NS:
        yield f"the device was recorded from {gap_ns / 1e6:,.1f} ms after the first launch on"


def _check_work(trace: Trace) -> Iterator[str]:
    """Check the work of devices: where it was launched, whether it starts before that, whether it ends in time."""
    unlinked = early = total = 0
    latest_start_ns, earliest_ns, lengths = 0, 0, []
    for rows in trace.find(trace.is_device_work):
        if not len(rows):
            continue
        launch, start_ns = trace.links.launch[rows], trace.start_ns[rows]
        ahead_ns = np.where(launch >= 0, trace.start_ns[launch] - start_ns, 0)
        total += len(rows)
        unlinked += int((launch < 0).sum())
        early += int((ahead_ns > EARLY_NS).sum())
        earliest_ns = max(earliest_ns, int(ahead_ns.max()))
        latest_start_ns = max(latest_start_ns, int(start_ns.max()))
        lengths.append(rows)
    if unlinked:
        yield f"of device work, {unlinked:,} of {total:,} have no launch call, such as what was launched before the trace began"
    if early:
        yield (
            f"of device work, {early:,} of {total:,} began before the launch call, by up to {earliest_ns / 1e6:,.3g} ms: "
            "the clocks of host and device disagree"
        )
    beyond = _count_beyond(trace, lengths, latest_start_ns)
    if beyond:
        yield f"of device work, {beyond:,} of {total:,} last longer than all the rest, as an overflow makes them"


def _count_beyond(trace: Trace, parts: list[Ints], latest_start_ns: int) -> int:
    """Count work that goes on, after the last work has begun, for longer than all the work took until then."""
    if not parts:
        return 0
    first_ns = min(int(trace.start_ns[rows].min()) for rows in parts)
    reach_ns = latest_start_ns + max(latest_start_ns - first_ns, START_GAP_NS)
    if latest_start_ns == first_ns:
        return 0
    return sum(int((trace.end_ns[rows] > reach_ns).sum()) for rows in parts)


def _check_clock(trace: Trace, timed_ns: int) -> Iterator[str]:
    """Find a hole that is far longer than all that was recorded, as a clock that is reset makes it.

    What fits into steps that were timed by another clock is no hole: the program did what the trace does not record.
    """
    rows = trace.order
    hole_ns, reached_ns, first_ns = 0, None, 0
    for block in blocks(len(rows)):
        start_ns, end_ns = trace.start_ns[rows[block]], trace.end_ns[rows[block]]
        first_ns = int(start_ns[0]) if reached_ns is None else first_ns
        reached = np.maximum.accumulate(np.append(first_ns if reached_ns is None else reached_ns, end_ns))
        hole_ns = max(hole_ns, int((start_ns - reached[:-1]).max()))
        reached_ns = int(reached[-1])
        trace.release()
    rest_ns = (reached_ns or 0) - first_ns - hole_ns
    if hole_ns > max(HOLE_FACTOR * rest_ns, LEAST_HOLE_NS, timed_ns):
        yield f"nothing happens for {hole_ns / 1e9:,.1f} s in the middle: a pause, or a clock that was reset"


def _check_log(log: Log) -> Iterator[str]:
    if log.duplicates:
        yield f"{format_number_of(log.duplicates, 'event')} listed twice, counted once"
    if log.counts.unmeasured:
        yield f"{format_number_of(log.counts.unmeasured, 'event')} without a length, or with one below 0, counted as 0 ns"
    dropped = log.names.dropped + log.threads.dropped + log.categories.dropped
    if dropped:
        yield f"{format_number_of(dropped, 'event')} have lost a name or a thread: there are too many different ones"
