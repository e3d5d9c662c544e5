"""The row of each slice on the timeline."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

import numpy as np

from collector.format.intervals import Ints
from collector.traces.kineto.classify.kinds import FIRST_DEVICE_KIND, Kind, KindColumn
from collector.traces.kineto.decode.digest import Columns
from collector.traces.kineto.decode.events import Loose
from collector.traces.kineto.decode.log import Log
from collector.traces.kineto.decode.numbering import group, small

LaneKind = Literal["thread", "stream", "annotation"]
_DIGITS = re.compile(r"-?\d+")
_WORK, _NOTES, _SYNC = 0, 1, 2


@dataclass(frozen=True)
class Lane:
    kind: LaneKind
    name: str
    process: str
    process_id: int | None
    thread_id: int | None
    device: int | None
    stream: int | None


@dataclass(frozen=True)
class Lanes:
    """The lanes of the timeline. `track` is the lane number of each slice; host slices have device and stream -1."""

    track: Ints
    lanes: tuple[Lane, ...]
    device: Ints
    stream: Ints


def assign_lanes(columns: Columns, kind: KindColumn, log: Log) -> Lanes:
    """Return the lane of every slice. Annotations and waits overlap a stream's work: they get lanes of their own."""
    found = _LaneFinder(columns, kind, log)
    track, device, stream = (log.scratch.column() for _ in range(3))
    for rows in log.scratch.blocks(len(columns)):
        for column, values in zip((track, device, stream), found.assign(rows), strict=True):
            column.append(values)
    return Lanes(track.finish(), tuple(found.lanes), device.finish(), stream.finish())


class _LaneFinder:
    """A finder of lanes, which works block by block. `lanes` are the lanes found so far."""

    def __init__(self, columns: Columns, kind: KindColumn, log: Log) -> None:
        self.lanes: list[Lane] = []
        self._columns, self._kind, self._log = columns, kind, log
        self._threads = list(log.threads)
        numbers = np.array([(_find_number(pid), _find_number(tid)) for pid, tid in log.threads], np.int64)
        self._pids, self._tids = numbers.reshape(-1, 2).T
        self._device_of, self._stream_of = log.args.integers("device"), log.args.integers("stream")
        self._lane_of_thread = np.full(len(self._threads), -1, np.int64)
        self._lane_of_stream: dict[tuple[int, ...], int] = {}

    def assign(self, rows: slice) -> tuple[Ints, Ints, Ints]:
        kind, thread, args = self._kind[rows], self._columns.thread[rows], self._columns.args[rows]
        on_device = np.flatnonzero(kind >= FIRST_DEVICE_KIND)
        self._meet_threads(np.unique(thread[kind < FIRST_DEVICE_KIND]))
        lane = self._lane_of_thread[thread]
        device, stream = np.full((2, len(kind)), -1, np.int64)
        thread, args, kind = thread[on_device], args[on_device], kind[on_device]
        told, told_stream = self._device_of[args], self._stream_of[args]
        device[on_device] = small(np.where(told >= 0, told, self._pids[thread]))
        stream[on_device] = np.where(told_stream >= 0, told_stream, self._tids[thread])
        layer = np.where(kind == Kind.DEVICE_ANNOTATION, _NOTES, np.where(kind == Kind.SYNC, _SYNC, _WORK))
        keys = (device[on_device], stream[on_device], layer.astype(np.int64))
        first, groups = group(*keys)
        met = [
            self._meet_stream(tuple(int(key[row]) for key in keys), self._threads[int(thread[row])])
            for row in first.tolist()
        ]
        lane[on_device] = np.array(met, np.int64)[groups] if met else groups
        return lane, device, stream

    def _meet_threads(self, threads: Ints) -> None:
        for code in threads[self._lane_of_thread[threads] < 0].tolist():
            self._lane_of_thread[code] = len(self.lanes)
            self.lanes.append(_name_thread(self._threads[code], self._log))

    def _meet_stream(self, key: tuple[int, ...], pair: tuple[Loose, Loose]) -> int:
        number = self._lane_of_stream.get(key)
        if number is None:
            number = self._lane_of_stream[key] = len(self.lanes)
            self.lanes.append(_name_stream(key[0], key[1], key[2], pair, self._log))
        return number


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


def _find_number(value: Loose) -> int:
    """Return the number in an id, such as 7 in "stream 7"; -1 if the id has no number."""
    number = _to_number(value)
    if number is not None:
        return number
    match = _DIGITS.search(str(value))
    return int(match.group(0)[:9]) if match else -1


def _to_number(value: Loose) -> int | None:
    if isinstance(value, str):
        value = int(value) if value.isdecimal() and len(value) < 19 else None
    return int(value) if isinstance(value, (int, float)) and abs(value) < 1 << 62 else None
