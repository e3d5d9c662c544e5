"""One panel for each device: its time by category, its streams, and the host's launches of its work."""

from __future__ import annotations

from collections.abc import Mapping
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
from profiler_server.derive.derived import NotReady, derived
from profiler_server.facts.machine import DeviceSummary, DeviceTimes
from profiler_server.figures.charts import Axes, Chart, Line, build_lines, decimate
from profiler_server.format import (
    ABSENT,
    choose_time_unit,
    format_count,
    format_duration,
    format_number_of,
    format_share,
    shorten_middle,
)
from profiler_server.widgets import Part, Stat, build_parts


@dataclass(frozen=True)
class LaunchQueue:
    """The number of launched pieces of work that wait to begin, over time. The arrays have only the drawn points."""

    mean: float
    most: int
    first_ns: int
    last_ns: int
    times_ns: Ints
    lengths: Ints


@dataclass(frozen=True)
class DeviceMeasures:
    """The figures of one device. `overlap_frac` is the share of communication that computation hides, None without any.
    `streams` has the busiest stream first. `unlinked` is the number of pieces of work without a known launch.
    """

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


STREAMS_SHOWN = 40
_PARTS = (
    ("computation_ns", "Computation", "compute", "kernels, collectives aside; setting memory"),
    (
        "exposed_communication_ns",
        "Exposed communication",
        "communication",
        "collectives while nothing computes",
    ),
    ("exposed_copy_ns", "Exposed copy", "copy", "copies while nothing else runs"),
    ("idle_ns", "Idle in between", "idle", "nothing runs, after the first work and before the last"),
)
_OUTSIDE = ("Idle around", "idle", "nothing runs, before the first work of the steps or after the last")


@dataclass(frozen=True)
class DevicePanel:
    """One device. `linked` says how many pieces of work have no known launch, and whether these are counted here.
    `covers` names the time that `accounts` divide.
    """

    title: str
    facts: tuple[Stat, ...]
    covers: str
    accounts: tuple[Part, ...]
    linked: str
    streams: tuple[tuple[str, StreamIdle], ...]
    streams_left_out: int
    launches: tuple[Stat, ...]
    queue: Chart | None


def build_panels(rank: RankRun, linked_only: bool) -> tuple[DevicePanel, ...] | NotReady:
    """Build a panel for each device that did any work; NotReady while that is computed. Raises as `RankRun.table`."""
    devices = measure_devices.peek(rank)
    if isinstance(devices, NotReady):
        return devices
    names = {device.index: device.name for device in rank.manifest.devices}
    labels = _label_streams(rank)
    return tuple(_build_panel(found, names.get(found.device, ""), labels, linked_only) for found in devices)


def _build_panel(found: DeviceMeasures, name: str, labels: Mapping[int, str], linked_only: bool) -> DevicePanel:
    times = found.summary.linked_only if linked_only else found.summary
    return DevicePanel(
        title=f"Device {found.device}{f': {shorten_middle(name, 60)}' if name else ''}",
        facts=_list_facts(found.summary, found.overlap_frac),
        covers=_describe_base(found.summary, times),
        accounts=_list_accounts(times, found.summary.steps_ns),
        linked=_describe_links(found, linked_only),
        streams=tuple((labels.get(idle.track, f"track {idle.track}"), idle) for idle in found.streams[:STREAMS_SHOWN]),
        streams_left_out=max(0, len(found.streams) - STREAMS_SHOWN),
        launches=_list_launches(found.launches, found.queue),
        queue=_draw_queue(found.device, found.queue),
    )


def _label_streams(rank: RankRun) -> dict[int, str]:
    data = rank.table("tracks", columns=["track", "name", "stream"]).to_pydict()
    rows = zip(data["track"], data["name"], data["stream"], strict=True)
    return {track: name or f"stream {stream}" for track, name, stream in rows}


def _list_facts(summary: DeviceSummary, overlap: float | None) -> tuple[Stat, ...]:
    facts = (
        ("Utilisation", summary.utilization_frac, "of the steps a kernel runs; copies do not count"),
        ("SM efficiency", summary.sm_efficiency_frac, "estimated from the blocks per multiprocessor"),
        ("Occupancy", summary.occupancy_frac, "achieved occupancy, estimated, weighted by time"),
        ("Tensor cores", summary.tensor_core_frac, "of kernel time, by the kernels' names"),
        ("Overlap", overlap, "of communication runs beside computation"),
    )
    return tuple(Stat(label, format_share(value), note) for label, value, note in facts if value is not None)


def _describe_base(summary: DeviceSummary, times: DeviceTimes) -> str:
    if summary.steps_ns > times.total_ns:
        return f"All recorded steps: {format_duration(summary.steps_ns)}"
    return f"From its first to its last work: {format_duration(times.total_ns)}"


def _list_accounts(times: DeviceTimes, steps_ns: int) -> tuple[Part, ...]:
    """Return the device's time by category, as shares of the time of all recorded steps, as in all figures here."""
    whole_ns = max(steps_ns, times.total_ns)
    words = [(label, color, meaning) for _, label, color, meaning in _PARTS]
    values = [int(getattr(times, field)) for field, *_ in _PARTS]
    if whole_ns > times.total_ns:
        words.append(_OUTSIDE)
        values.append(whole_ns - times.total_ns)
    return build_parts(words, values, whole_ns)


def _describe_links(found: DeviceMeasures, linked_only: bool) -> str:
    if not found.unlinked:
        return "All of its work is linked to the call that launched it."
    count = f"{format_count(found.unlinked)} of {format_count(found.pieces)} pieces of work have no known launch"
    return f"{count}; they are {'left out here' if linked_only else 'counted here'}."


def _list_launches(launches: Launches | None, queue: LaunchQueue | None) -> tuple[Stat, ...]:
    if launches is None or queue is None:
        return (Stat("Launches", ABSENT, "no launch of this device's work is in the trace"),)
    longest = f"longest {format_duration(launches.delay_max_ns)}"
    ranked = launches.delay_p95_ns is not None
    spread = f"p95 {format_duration(launches.delay_p95_ns)}, {longest}" if ranked else longest
    return (
        Stat("Launches", format_count(launches.count), _describe_unlinked(launches.unlinked)),
        Stat("Launch delay p50", format_duration(launches.delay_p50_ns), spread),
        Stat(
            "Late while busy",
            format_count(launches.late - launches.late_idle),
            "began over 100 µs after the launch, behind other work: the host is ahead, which is good",
        ),
        Stat(
            "Late while idle",
            format_count(launches.late_idle),
            "began over 100 µs after the launch, although the device idled that long: something else held them up",
        ),
        Stat(
            "Short kernels",
            format_count(launches.short),
            "shorter than their launch call: fuse them, or launch them as a graph",
        ),
        Stat(
            "Slow launch calls",
            format_count(launches.slow),
            "over 50 µs: a full queue or an allocation held the host",
        ),
        Stat(
            "Queue length",
            f"{queue.mean:,.1f}",
            f"mean over time; {format_count(queue.most)} at most",
        ),
    )


def _describe_unlinked(count: int) -> str:
    if not count:
        return "every piece of work has its call"
    return f"{format_number_of(count, 'piece')} of work {'has' if count == 1 else 'have'} no call in the trace"


def _draw_queue(device: int, queue: LaunchQueue | None) -> Chart | None:
    if queue is None or len(queue.times_ns) < 2:
        return None
    scale, unit = choose_time_unit(float(queue.last_ns - queue.first_ns))
    line = Line("queued", "compute", queue.lengths, "steps")
    x = (queue.times_ns - queue.first_ns) / scale
    figure = build_lines(
        x,
        [line],
        Axes(x_title=f"time since the first launch ({unit})", y_title="waiting pieces", unit="", legend=False),
    )
    rows = (("Mean over time", f"{queue.mean:,.2f}"), ("Most", format_count(queue.most)))
    caption = "Work that the host has launched and the device has not begun. At zero the device waits for the host."
    return Chart(f"device-{device}-queue", "Launch queue", caption, figure, ("", "Queue length"), rows, "short")
