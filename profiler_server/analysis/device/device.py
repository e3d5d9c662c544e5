"""The use of the device: utilisation, SM efficiency, occupancy, and the breakdown of its time.

Each function documents its figure. A run with several devices gets the mean over the devices that had work.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from collector.format.intervals import Floats, Intervals, Ints, Mask, integrate_capped, unite
from collector.format.run import RankRun
from profiler_server.analysis.device.slices import (
    Texts,
    read_slices,
    read_spans,
    read_steps,
    read_stream_tracks,
    release_slices,
    to_ints,
)
from profiler_server.analysis.tables import find_places, read_rows
from profiler_server.derive.derived import derived
from profiler_server.diagnosis.limits.traces import KERNEL_WAIT_NS
from profiler_server.facts.machine import DeviceSummary, DeviceTimes, IdleCauses

_COLUMNS = ("id", "track", "start_ns", "duration_ns", "category", "launched_by", "args")
KERNEL, COLLECTIVE, COPY, SET = range(4)
"""Values of `DeviceWork.kind`."""
_KINDS = {"kernel": KERNEL, "communication": COLLECTIVE, "memcpy": COPY, "memset": SET}


@dataclass(frozen=True)
class DeviceWork:
    """Device work of a rank, one row per slice (trace event), ordered by start.

    `device` is the number of the device, `track` that of the stream, and `kind` is one of KERNEL, COLLECTIVE, COPY
    and SET. `launch_ns` and `launch_end_ns` are the start and end of the launch call on the host, and `launched_by`
    is the id of its slice. Each is -1 if unknown. All work of a CUDA graph has the same launch call. `blocks_per_sm`
    and `occupancy_frac` are NaN if unknown.
    """

    device: Ints
    track: Ints
    kind: Ints
    start_ns: Ints
    end_ns: Ints
    launch_ns: Ints
    launch_end_ns: Ints
    launched_by: Ints
    blocks_per_sm: Floats
    occupancy_frac: Floats

    @property
    def linked(self) -> Mask:
        """Return a mask of the work with a known launch call."""
        return self.launched_by >= 0

    def pick(self, rows: Mask) -> DeviceWork:
        return DeviceWork(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))

    def __len__(self) -> int:
        return len(self.start_ns)


Measure = Callable[["_Kernels"], float | None]
T = TypeVar("T", DeviceTimes, IdleCauses)


@derived(file="device-summary")
def summarize_device(rank: RankRun) -> DeviceSummary | None:
    """Summarise the device of one rank; None without a trace or without device work.

    Raises TableBrokenError or NewerSchemaError.
    """
    work = read_device_work(rank)
    if work is None or not len(work):
        return None
    return summarize_work(work, rank)


def summarize_work(work: DeviceWork, rank: RankRun, device: int | None = None) -> DeviceSummary:
    """Summarise this work of a rank. `device` is the number of the device if all the work is of one device, else None.
    Raises as `read_rows` does.
    """
    spans = read_spans(rank, *read_steps(rank))
    extents = split_windows(work, rank)
    times = [account_times(part) for part in extents]
    linked = times if work.linked.all() else [account_times(part.pick(part.linked)) for part in extents]
    whole = _add(DeviceTimes, times)
    return DeviceSummary(
        **vars(whole),
        linked_only=_add(DeviceTimes, linked),
        utilization_frac=_mean_over_devices(work, spans, lambda busy: float(unite(busy.starts, busy.ends).length_ns)),
        sm_efficiency_frac=_mean_over_devices(work, spans, _measure_sm),
        occupancy_frac=_measure_occupancy(work, spans),
        tensor_core_frac=_measure_tensor_core(rank, device),
        idle_causes_ns=_add(IdleCauses, [find_idle_causes(part) for part in extents]),
        steps_ns=spans.length_ns,
    )


def read_device_work(rank: RankRun) -> DeviceWork | None:
    """Return the device work of a rank, ordered by start, or None without slices."""
    data = read_slices(rank, _COLUMNS)
    if data is None:
        return None
    streams = read_stream_tracks(rank)
    work = data.take(pa.array(_find_work(data, list(streams))))
    ids, starts, lengths = (to_ints(data[name]) for name in ("id", "start_ns", "duration_ns"))
    del data
    release_slices()
    launched_by = to_ints(work["launched_by"].fill_null(-1))
    launch = find_places(ids, launched_by)
    known = launch >= 0
    track, start = to_ints(work["track"]), to_ints(work["start_ns"])
    device_of = np.zeros(max(streams, default=0) + 1, np.int64)
    device_of[list(streams)] = list(streams.values())
    return DeviceWork(
        device_of[track],
        track,
        Texts(work["category"]).number(_KINDS),
        start,
        start + to_ints(work["duration_ns"]),
        np.where(known, starts[launch], -1),
        np.where(known, starts[launch] + lengths[launch], -1),
        launched_by,
        *_read_args(work["args"].combine_chunks()),
    )


def _find_work(data: pa.Table, streams: Sequence[int]) -> Ints:
    on_stream = np.isin(data["track"].to_numpy(), streams)
    rows = np.flatnonzero(on_stream & (Texts(data["category"]).number(_KINDS) >= 0))
    return rows[np.argsort(to_ints(data["start_ns"])[rows], kind="stable")]


def account_times(work: DeviceWork) -> DeviceTimes:
    """Return the time from the first to the last device event by category, as TraceLens does. The categories sum to the
    total.

    Hidden time does not count: copies during computation or communication, and communication during computation.
    """
    if not len(work):
        return DeviceTimes(0, 0, 0, 0, 0)
    computation = unite_work(work, (work.kind == KERNEL) | (work.kind == SET))
    communication = unite_work(work, work.kind == COLLECTIVE)
    copies = unite_work(work, work.kind == COPY)
    total = int(work.end_ns.max() - work.start_ns.min())
    exposed_communication = (communication - computation).length_ns
    exposed_copy = (copies - computation - communication).length_ns
    idle = total - computation.length_ns - exposed_communication - exposed_copy
    return DeviceTimes(total, computation.length_ns, exposed_communication, exposed_copy, idle)


def find_idle_causes(work: DeviceWork) -> IdleCauses:
    """Return the idle time of all streams by its cause, as HTA does. Idle time is a gap before a piece of work.

    Host wait: the launch began after the previous work had ended. Kernel wait: any other gap under 30 µs. Other: all
    remaining gaps. A gap before work with an unknown launch cannot be host wait.
    """
    order = np.lexsort((work.start_ns, work.track))
    track, start, end, launch = (values[order] for values in (work.track, work.start_ns, work.end_ns, work.launch_ns))
    same = track[1:] == track[:-1]
    gap = np.where(same, np.maximum(start[1:] - end[:-1], 0), 0)
    host = same & (launch[1:] > end[:-1])
    kernel = same & ~host & (gap < KERNEL_WAIT_NS)
    return IdleCauses(int(gap[host].sum()), int(gap[kernel].sum()), int(gap[same & ~host & ~kernel].sum()))


def split_windows(work: DeviceWork, rank: RankRun) -> list[DeviceWork]:
    """Return the work of each detailed window separately, because the unrecorded time between two windows is not idle
    time.
    """
    windows = sorted(rank.manifest.windows, key=lambda window: window.start_ns)
    if len(windows) < 2:
        return [work]
    edges = np.array([window.start_ns for window in windows[1:]], np.int64)
    group = np.searchsorted(edges, work.start_ns, side="right")
    return [work.pick(group == number) for number in range(len(windows)) if (group == number).any()]


def unite_work(work: DeviceWork, rows: Mask) -> Intervals:
    return unite(work.start_ns[rows], work.end_ns[rows])


class _Kernels(NamedTuple):
    starts: Ints
    ends: Ints
    blocks_per_sm: Floats


def _mean_over_devices(work: DeviceWork, spans: Intervals, measure: Measure) -> float | None:
    total = spans.length_ns
    if not total:
        return None
    values = []
    for device in np.unique(work.device):
        rows = (work.kind <= COLLECTIVE) & (work.device == device)
        kernels = _Kernels(work.start_ns[rows], work.end_ns[rows], work.blocks_per_sm[rows])
        parts = [measure(_clip(kernels, *span)) for span in zip(spans.starts, spans.ends, strict=True)]
        known = [part for part in parts if part is not None]
        if len(known) == len(parts):
            values.append(sum(known) / total)
    return float(np.mean(values)) if values else None


def _clip(kernels: _Kernels, low_ns: int, high_ns: int) -> _Kernels:
    inside = (kernels.starts < high_ns) & (kernels.ends > low_ns)
    starts, ends = kernels.starts[inside], kernels.ends[inside]
    return _Kernels(np.maximum(starts, low_ns), np.minimum(ends, high_ns), kernels.blocks_per_sm[inside])


def _measure_sm(kernels: _Kernels) -> float | None:
    """Return the time in ns in which kernels filled the multiprocessors. Partial filling counts in proportion.

    None if the trace lacks the blocks per multiprocessor, as on ROCm.
    """
    known = ~np.isnan(kernels.blocks_per_sm)
    if len(known) and not known.any():
        return None
    return integrate_capped(kernels.starts[known], kernels.ends[known], kernels.blocks_per_sm[known], 1.0)


def _measure_occupancy(work: DeviceWork, spans: Intervals) -> float | None:
    rows = (work.kind <= COLLECTIVE) & ~np.isnan(work.occupancy_frac)
    starts, ends = work.start_ns[rows], work.end_ns[rows]
    inside = np.zeros(len(starts), bool)
    for low_ns, high_ns in zip(spans.starts, spans.ends, strict=True):
        inside |= (starts < high_ns) & (ends > low_ns)
    lengths = (ends - starts)[inside]
    total = lengths.sum()
    return float((work.occupancy_frac[rows][inside] * lengths).sum() / total) if total else None


def _measure_tensor_core(rank: RankRun, device: int | None) -> float | None:
    data = read_rows(rank, "kernels", ("device", "tensor_core", "total_ns"))
    if device is not None:
        data = data.filter(pc.equal(data["device"], device))
    totals = to_ints(data["total_ns"])
    used = np.asarray(data["tensor_core"].to_numpy(), bool)
    return float(totals[used].sum() / totals.sum()) if totals.sum() else None


def _read_args(args: pa.DictionaryArray) -> tuple[Floats, Floats]:
    """Return blocks per SM and occupancy of each row, NaN if the trace lacks them. Each distinct text is parsed once."""
    indices = np.asarray(args.indices.fill_null(-1).to_numpy(), np.int64)
    blocks, occupancy = np.full((2, len(args.dictionary) + 1), np.nan)
    for code in np.unique(indices[indices >= 0]).tolist():
        values = json.loads(args.dictionary[code].as_py())
        blocks[code] = _to_float(values.get("blocks per SM"))
        occupancy[code] = _to_float(values.get("est. achieved occupancy %")) / 100.0
    return blocks[indices], occupancy[indices]


def _to_float(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) else float("nan")


def _add(kind: type[T], parts: list[T]) -> T:
    return kind(**{name: sum(getattr(part, name) for part in parts) for name in kind.__dataclass_fields__})
