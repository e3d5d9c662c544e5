"""The interplay of host and device: idle causes by stream, launches, the queue of launched work, and overlap.

The thresholds are those of HTA, so that its users see the same figures.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from collector.format.intervals import Ints, unite
from collector.format.steps import FEWEST_RANKED
from profiler_server.analysis.device.device import COLLECTIVE, COPY, DeviceWork, find_idle_causes, unite_work
from profiler_server.diagnosis.limits.traces import LONG_CALL_NS, LONG_DELAY_NS
from profiler_server.facts.machine import IdleCauses


@dataclass(frozen=True)
class StreamIdle:
    """One stream: the number (`count`) of its pieces of work, its busy time in ns, and its gaps in ns by cause.
    `track` is its number in the trace.
    """

    track: int
    count: int
    busy_ns: int
    causes: IdleCauses

    @property
    def idle_ns(self) -> int:
        return self.causes.host_wait + self.causes.kernel_wait + self.causes.other


@dataclass(frozen=True)
class Launches:
    """Statistics of the known launch calls, whose number is `count`.

    A delay is max(0, start of the first work - end of its launch call). Its 95th percentile is None with few calls.
    A call counts once, even if it launches a graph of many kernels. `short` counts calls whose work took less time
    than the call, `late` delays over 100 µs, and `slow` calls over 50 µs. `late_idle` counts the delays of `late` in
    which the device was idle for over 100 µs. `unlinked` is the number of pieces of work without a known call.
    """

    count: int
    unlinked: int
    delay_p50_ns: float
    delay_p95_ns: float | None
    delay_max_ns: int
    short: int
    late: int
    late_idle: int
    slow: int


@dataclass(frozen=True)
class QueueLength:
    """The number of pieces of launched work that have not started yet, over time. Each of `lengths` is valid from its
    time on.
    """

    times_ns: Ints
    lengths: Ints

    @property
    def mean(self) -> float:
        if len(self.times_ns) < 2:
            return 0.0
        spans = np.diff(self.times_ns)
        return float((self.lengths[:-1] * spans).sum() / spans.sum()) if spans.sum() else 0.0


def list_idle(work: DeviceWork) -> tuple[StreamIdle, ...]:
    """Return the busy time and the gaps of each stream, the busiest stream first."""
    streams = [work.pick(work.track == track) for track in np.unique(work.track)]
    found = [
        StreamIdle(int(part.track[0]), len(part), unite(part.start_ns, part.end_ns).length_ns, find_idle_causes(part))
        for part in streams
    ]
    return tuple(sorted(found, key=lambda stream: -stream.busy_ns))


def summarize_launches(work: DeviceWork) -> Launches | None:
    """Summarise launches; None if no launch is known."""
    known = work.pick(work.launch_ns >= 0)
    if not len(known):
        return None
    # Device work is sorted by start, so the first row of a call is its first work.
    _, first, launch = np.unique(known.launched_by, return_index=True, return_inverse=True)
    delay = np.maximum(known.start_ns[first] - known.launch_end_ns[first], 0)
    call = known.launch_end_ns[first] - known.launch_ns[first]
    worked = np.zeros(len(first), np.int64)
    np.add.at(worked, launch, known.end_ns - known.start_ns)
    busy, ends = unite(work.start_ns, work.end_ns), known.launch_end_ns[first]
    busy_ns = busy.measure_before(ends + delay) - busy.measure_before(ends)
    p50, p95 = np.percentile(delay, [50, 95])
    return Launches(
        count=len(first),
        unlinked=len(work) - len(known),
        delay_p50_ns=float(p50),
        delay_p95_ns=float(p95) if len(first) >= FEWEST_RANKED else None,
        delay_max_ns=int(delay.max()),
        short=int((worked < call).sum()),
        late=int((delay > LONG_DELAY_NS).sum()),
        late_idle=int((delay - busy_ns > LONG_DELAY_NS).sum()),
        slow=int((call > LONG_CALL_NS).sum()),
    )


def trace_queue(work: DeviceWork) -> QueueLength:
    """Return the length of the launch queue over time: plus 1 at a launch call, minus 1 when the work of the call
    starts.

    The clocks of host and device differ slightly. Work that seems to start before its call counts as started at the
    call.
    """
    known = work.pick(work.launch_ns >= 0)
    times = np.concatenate([known.launch_ns, np.maximum(known.start_ns, known.launch_ns)])
    changes = np.repeat(np.array([1, -1], np.int64), len(known))
    order = np.argsort(times, kind="stable")
    times, lengths = times[order], np.cumsum(changes[order])
    last = np.append(np.diff(times) > 0, True) if len(times) else np.zeros(0, bool)
    return QueueLength(times[last], lengths[last])


def measure_overlap(work: DeviceWork) -> float | None:
    """Return the share of the communication time that computation hides; None without communication."""
    communication = unite_work(work, work.kind == COLLECTIVE)
    computation = unite_work(work, (work.kind != COLLECTIVE) & (work.kind != COPY))
    length = communication.length_ns
    return (communication & computation).length_ns / length if length else None
