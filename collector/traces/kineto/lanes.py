"""Which row of the timeline each slice stands on.

May import numpy and its neighbours in this room.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

import numpy as np

from collector.traces.kineto.arguments import Arguments
from collector.traces.kineto.classify import FIRST_DEVICE_KIND, Kind, Kinds
from collector.traces.kineto.clock import Ints
from collector.traces.kineto.collect import Columns, Log
from collector.traces.kineto.events import Loose
from collector.traces.kineto.tables import small

LaneKind = Literal["thread", "stream", "annotation"]
_DIGITS = re.compile(r"-?\d+")
_WORK, _NOTES, _SYNC = 0, 1, 2


@dataclass(frozen=True)
class Lane:
    """One row of the timeline."""

    kind: LaneKind
    name: str
    process: str
    process_id: int | None
    thread_id: int | None
    device: int | None
    stream: int | None


@dataclass(frozen=True)
class Lanes:
    """The lane of each slice as a number, and the lanes. Device and stream of each slice, -1 for host slices."""

    track: Ints
    lanes: tuple[Lane, ...]
    device: Ints
    stream: Ints


def assign_lanes(columns: Columns, kinds: Kinds, arguments: Arguments, log: Log) -> Lanes:
    """Give every slice a lane: a thread, a stream, or beside a stream a lane for annotations and one for waits.

    Annotations of a device and waits overlap the work of their stream without nesting, so they stand apart.
    """
    on_device = kinds.kind >= FIRST_DEVICE_KIND
    pids, tids = _read_numbers(log)
    device = small(_prefer(arguments.integers("device")[columns.args], pids[columns.thread]))
    device = np.where(on_device, device, -1)
    stream = np.where(on_device, _prefer(arguments.integers("stream")[columns.args], tids[columns.thread]), -1)
    layer = np.full(len(columns), _WORK, np.int64)
    layer[kinds.kind == Kind.DEVICE_ANNOTATION] = _NOTES
    layer[kinds.kind == Kind.SYNC] = _SYNC
    keys = np.stack([on_device.astype(np.int64), np.where(on_device, device, columns.thread), stream, layer])
    found, first, track = np.unique(keys, axis=1, return_index=True, return_inverse=True)
    threads = list(log.threads)
    lanes = []
    for index, (is_device, main, stream_id, lane_layer) in enumerate(found.T.tolist()):
        pair = threads[int(columns.thread[first[index]])]
        lanes.append(_name_stream(main, stream_id, lane_layer, pair, log) if is_device else _name_thread(pair, log))
    return Lanes(track.reshape(-1).astype(np.int64), tuple(lanes), device, stream)


def _name_thread(pair: tuple[Loose, Loose], log: Log) -> Lane:
    pid, tid = pair
    label = log.labels.get((pid, tid, "thread_name")) or f"thread {tid}"
    # The profiler's own spans have words in place of a process id.
    kind: LaneKind = "thread" if _to_number(pid) is not None else "annotation"
    return Lane(kind, label, _name_process(pid, log), _to_number(pid), _to_number(tid), None, None)


def _name_stream(device: int, stream: int, layer: int, pair: tuple[Loose, Loose], log: Log) -> Lane:
    label = {_WORK: f"stream {stream}", _NOTES: f"stream {stream} annotations", _SYNC: f"stream {stream} waits"}[layer]
    process = _name_process(pair[0], log) if not isinstance(pair[0], int) else f"GPU {device}"
    return Lane("stream" if layer == _WORK else "annotation", label, process, None, None, device, stream)


def _name_process(pid: Loose, log: Log) -> str:
    label = log.labels.get((pid, 0, "process_name")) or next(
        (text for (owner, _, kind), text in log.labels.items() if owner == pid and kind == "process_name"), ""
    )
    return f"{label} {pid}".strip() if label and label != str(pid) else str(pid)


def _read_numbers(log: Log) -> tuple[Ints, Ints]:
    pairs = [(_find_number(pid), _find_number(tid)) for pid, tid in log.threads]
    array = np.array(pairs, np.int64).reshape(-1, 2)
    return array[:, 0], array[:, 1]


def _find_number(value: Loose) -> int:
    """Return the number in an id, such as 7 in "stream 7"."""
    number = _to_number(value)
    if number is not None:
        return number
    match = _DIGITS.search(str(value))
    return int(match.group(0)[:9]) if match else -1


def _to_number(value: Loose) -> int | None:
    if isinstance(value, str):
        value = int(value) if value.isdecimal() and len(value) < 19 else None
    return int(value) if isinstance(value, (int, float)) and abs(value) < 1 << 62 else None


def _prefer(first: Ints, second: Ints) -> Ints:
    return np.where(first >= 0, first, second)
