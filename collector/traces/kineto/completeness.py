"""Check whether a trace is complete: missing or impossible data makes its figures too small or too large.

No figure is changed here. Each finding is a clause of one sentence. Omitted events have warnings of their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from collector.format.intervals import Ints, Mask
from collector.format.schema.manifest import Warn
from collector.format.schema.wording import format_number_of, format_percent
from collector.traces.kineto.classify.kinds import Kind
from collector.traces.kineto.classify.trace import Trace
from collector.traces.kineto.decode.log import Log

COMPLETE = "complete"
_LAUNCH = re.compile(r"(cuda|hip|cu)\w*Launch\w*Kernel|(cuda|cu|hip)GraphLaunch$")
START_GAP_NS = 1_000_000
"""The least time from the first launch to the first linked launch that is considered a gap."""
EARLY_NS = 100_000
"""Device work may begin this long before its launch call: the clocks of host and device agree to some µs only."""
HOLE_FACTOR, LEAST_HOLE_NS = 10, 10**9
"""A hole this many times as long as the rest of the trace, and at least this long, is no pause of a training."""
_LEAST_WITHOUT_KERNEL_FRAC = 0.01


def check_completeness(trace: Trace, timed_ns: int = 0) -> list[str]:
    """Return what the trace lacks, a clause each. `timed_ns` is the length of its steps by another clock, or 0."""
    return [
        *_check_launches(*_find_launches(trace)),
        *_check_work(trace),
        *_check_clock(trace, timed_ns),
        *_check_log(trace.log),
    ]


def describe_completeness(findings: list[str]) -> str:
    """Return one line: `complete`, or the findings."""
    return "; ".join(findings) or COMPLETE


def _find_launches(trace: Trace) -> tuple[Ints, Mask]:
    """Return the starts of kernel launch calls in time order, and a mask of the launches whose work is in the trace."""
    is_call = (trace.kind == Kind.RUNTIME) & (trace.columns.correlation > 0)
    rows = trace.sort(is_call & trace.find_named(_LAUNCH.match))
    used = np.zeros(len(trace.columns), bool)
    for work in trace.find(trace.is_device_work):
        launch = trace.launch[work]
        used[launch[launch >= 0]] = True
    return trace.start_ns[rows], used[rows]


def _check_launches(start_ns: Ints, has_work: Mask) -> Iterator[str]:
    count, missing = len(has_work), int((~has_work).sum())
    if count and missing == count:
        yield f"none of {format_number_of(count, 'launch call')} has a kernel, so nothing of the device was recorded"
        return
    if missing > _LEAST_WITHOUT_KERNEL_FRAC * count:
        yield f"{missing:,} of {format_number_of(count, 'launch call')} have no kernel ({format_percent(missing / count)})"
    first = int(np.argmax(has_work)) if count else 0
    gap_ns = int(start_ns[first] - start_ns[0]) if count else 0
    if gap_ns > START_GAP_NS:
        yield f"the device was recorded from {gap_ns / 1e6:,.1f} ms after the first launch on"


def _check_work(trace: Trace) -> Iterator[str]:
    """Yield clauses on device work: without a launch, started before its launch, or lasting far beyond the rest."""
    unlinked = early = total = 0
    earliest_ns = 0
    starts_ns: list[int] = []
    for rows in trace.find(trace.is_device_work):
        if not len(rows):
            continue
        launch, start_ns = trace.launch[rows], trace.start_ns[rows]
        ahead_ns = np.where(launch >= 0, trace.start_ns[launch] - start_ns, 0)
        total += len(rows)
        unlinked += int((launch < 0).sum())
        early += int((ahead_ns > EARLY_NS).sum())
        earliest_ns = max(earliest_ns, int(ahead_ns.max()))
        starts_ns += [int(start_ns.min()), int(start_ns.max())]
    if unlinked:
        yield f"of device work, {unlinked:,} of {total:,} have no launch call, such as what was launched before the trace began"
    if early:
        yield (
            f"of device work, {early:,} of {total:,} began before the launch call, by up to {earliest_ns / 1e6:,.3g} ms: "
            "the clocks of host and device disagree"
        )
    beyond = _count_beyond(trace, min(starts_ns, default=0), max(starts_ns, default=0))
    if beyond:
        yield f"of device work, {beyond:,} of {total:,} last longer than all the rest, as an overflow makes them"


def _count_beyond(trace: Trace, first_ns: int, last_ns: int) -> int:
    """Return the number of pieces of device work that end impossibly late.

    `first_ns` and `last_ns` are the first and the last start of device work. An end is impossibly late if the time from
    the last start to this end is longer than the time from the first start to the last.
    """
    reach_ns = last_ns + max(last_ns - first_ns, START_GAP_NS)
    every = trace.find(trace.is_device_work) if last_ns > first_ns else ()
    return sum(int((trace.end_ns[rows] > reach_ns).sum()) for rows in every)


def _check_clock(trace: Trace, timed_ns: int) -> Iterator[str]:
    """Yield a clause if nothing happens for far longer than all recorded time, for example after a clock reset.

    Such a hole is no fault if it is no longer than `timed_ns`, the duration of the steps by another clock. Then the
    program did work in the hole that the trace does not record.
    """
    rows = trace.order
    hole_ns, reached_ns, first_ns = 0, None, 0
    for block in trace.log.scratch.blocks(len(rows)):
        start_ns, end_ns = trace.start_ns[rows[block]], trace.end_ns[rows[block]]
        first_ns = int(start_ns[0]) if reached_ns is None else first_ns
        reached = np.maximum.accumulate(np.append(first_ns if reached_ns is None else reached_ns, end_ns))
        hole_ns = max(hole_ns, int((start_ns - reached[:-1]).max()))
        reached_ns = int(reached[-1])
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


def count_events(trace: Trace) -> dict[str, int]:
    """Return the number of slices, counters and other events, and of lost, rounded and duplicate events, by name."""
    log = trace.log
    return {
        "slices": len(trace.columns),
        "counters": len(log.counters[0]),
        "memory": len(log.memory["time_ns"]),
        "flows": log.counts.flows,
        "metadata": log.counts.metadata,
        "profiler_spans": log.counts.profiler_spans,
        "lost": count_lost(log),
        "rounded": log.counts.rounded,
        "duplicates": log.duplicates,
        "unmeasured": log.counts.unmeasured,
        "args_dropped": log.args.dropped,
    }


def count_lost(log: Log) -> int:
    return log.counts.lost + log.counts.untimed + log.count_unclosed()


def explain_empty(path: Path, cut_short: str, untimed: int) -> str:
    if untimed:
        return f"{path} is a trace without an event that has a time ({untimed} have none that can be true)"
    if cut_short:
        return f"{path} ends before its first event ({cut_short})"
    return f"{path} is a trace without a single event"


def list_losses(cut_short: str, log: Log) -> Iterator[str]:
    """Yield a clause for each loss of events in the file. `cut_short` is why the file ends early, "" for a whole file."""
    if cut_short:
        yield f"the file was cut off ({cut_short})"
    if lost := count_lost(log):
        yield f"{format_number_of(lost, 'event')} could not be read or cannot be true"


def describe_losses(cut_short: str, log: Log) -> Iterator[Warn]:
    """Yield a warning for each kind of lost events. `cut_short` is why the file ends early, "" for a whole file."""
    if cut_short:
        text = f"The trace file was cut off ({cut_short}); everything before the cut is here."
        yield Warn("trace_cut_off", text)
    if log.counts.untimed:
        text = (
            f"Left out: {format_number_of(log.counts.untimed, 'event')} whose time or length cannot be true: there is "
            "none, it is no number, or it lies a year or more from the rest of the trace."
        )
        yield Warn("trace_events_untimed", text)
    if unread := log.counts.lost + log.count_unclosed():
        text = (
            f"Not shown: {format_number_of(unread, 'event')} of kinds that make no slice, or that begin without an end."
        )
        yield Warn("trace_events_unknown", text)
    if log.args.dropped:
        text = (
            f"The arguments of {format_number_of(log.args.dropped, 'event')} are not kept: together they are too large."
        )
        yield Warn("trace_args_dropped", text)
