"""What the panel of a device shows, as figures: all that is asked of its work, which is read once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from collector.format.intervals import Ints
from collector.format.run import RankRun
from profiler_server.analysis.device.device import DeviceWork, read_device_work, summarize_work
from profiler_server.analysis.device.launches import (
    Launches,
    QueueLength,
    StreamIdle,
    list_idle,
    measure_overlap,
    summarize_launches,
    trace_queue,
)
from profiler_server.derive.derived import derived
from profiler_server.facts.machine import DeviceSummary
from profiler_server.figures import decimate


@dataclass(frozen=True)
class LaunchQueue:
    """The launch queue from its first to its last change; of the times and lengths there are as many as are drawn."""

    mean: float
    most: int
    first_ns: int
    last_ns: int
    times_ns: Ints
    lengths: Ints


@dataclass(frozen=True)
class DeviceMeasures:
    """One device. `unlinked` are pieces of work without a known launch; the busiest stream is the first."""

    device: int
    summary: DeviceSummary
    overlap_frac: float | None
    pieces: int
    unlinked: int
    streams: tuple[StreamIdle, ...]
    launches: Launches | None
    queue: LaunchQueue | None


@derived(file="device-measures")
def measure_devices(rank: RankRun) -> tuple[DeviceMeasures, ...]:
    """Return the measures of each device that did anything."""
    work = read_device_work(rank)
    if work is None or not len(work):
        return ()
    devices = np.unique(work.device).tolist()
    if len(devices) == 1:  # millions of rows are not copied where that changes nothing
        return (_measure(rank, work, devices[0]),)
    return tuple(_measure(rank, work.pick(work.device == device), device) for device in devices)


def _measure(rank: RankRun, work: DeviceWork, device: int) -> DeviceMeasures:
    return DeviceMeasures(
        device=device,
        summary=summarize_work(work, rank, device),
        overlap_frac=measure_overlap(work),
        pieces=len(work),
        unlinked=int((~work.linked).sum()),
        streams=list_idle(work),
        launches=summarize_launches(work),
        queue=_thin_out(trace_queue(work)),
    )


def _thin_out(queue: QueueLength) -> LaunchQueue | None:
    if not len(queue.times_ns):
        return None
    times, lengths = decimate(queue.times_ns, queue.lengths)
    first, last = int(queue.times_ns[0]), int(queue.times_ns[-1])
    return LaunchQueue(queue.mean, int(queue.lengths.max()), first, last, times, lengths)
