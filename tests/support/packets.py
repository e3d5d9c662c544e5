"""Traces of Perfetto, written with its own protos from the events of a Kineto trace, in the layouts that programs write."""

from __future__ import annotations

import gzip
import heapq
import json
from collections.abc import Iterable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as protos

from collector.traces.writing import spread_overlapping
from tests.support.traces import Event

CLEARED, NEEDED = 1, 2
BEGIN, END, INSTANT, COUNTER = 1, 2, 3, 4
_OWN = frozenset({"Spans", "Traces", "Tracks", ""})
_STAGES = {"kernel": "Kernel", "gpu_memcpy": "Memcpy", "gpu_memset": "Memset", "gpu_user_annotation": "Annotation"}
ON_GPU = frozenset(_STAGES)
_LAUNCH = {"registers per thread": "registers_per_thread", "shared memory": "shared_mem_dynamic"}


class PacketWriter:
    """Packets of one writer, which numbers its names."""

    def __init__(self, sequence: int = 1) -> None:
        self.trace = protos.Trace()
        self._sequence = sequence
        self._numbers: dict[tuple[str, str], int] = {}
        self._tracks: dict[Any, int] = {}

    def packet(self, time_ns: int | None = None) -> Any:
        packet = self.trace.packet.add(trusted_packet_sequence_id=self._sequence)
        packet.sequence_flags = NEEDED if len(self.trace.packet) > 1 else CLEARED
        if time_ns is not None:
            packet.timestamp = time_ns
        return packet

    def number(self, packet: Any, kind: str, text: str, **fields: Any) -> int:
        """Return the number of a name; the packet defines it if no earlier one does."""
        number = self._numbers.get((kind, text))
        if number is None:
            number = self._numbers[kind, text] = len(self._numbers) + 1
            getattr(packet.interned_data, kind).add(iid=number, name=text, **fields)
        return number

    def anchor(self, time_ns: int, wall_ns: int) -> None:
        clocks = self.packet(time_ns).clock_snapshot.clocks
        clocks.add(clock_id=6, timestamp=time_ns)
        clocks.add(clock_id=1, timestamp=wall_ns)

    def track(self, pid: int, tid: Any, name: str = "", process: str = "", lane: int = 0) -> int:
        """Return the track of a thread, or one below it for slices that overlap."""
        uuid = self._tracks.get((pid, tid, lane))
        if uuid is not None:
            return uuid
        parent = self.track(pid, tid, name, process) if lane else self._process(pid, process)
        uuid = self._tracks[pid, tid, lane] = len(self._tracks) + 100
        descriptor = self.packet().track_descriptor
        descriptor.uuid, descriptor.parent_uuid = uuid, parent
        if not lane and isinstance(tid, int):
            descriptor.thread.pid, descriptor.thread.tid = pid, tid
            descriptor.thread.thread_name = name
        elif not lane:
            descriptor.name = tid
        return uuid

    def _process(self, pid: int, name: str) -> int:
        uuid = self._tracks.get(pid)
        if uuid is None:
            uuid = self._tracks[pid] = len(self._tracks) + 100
            descriptor = self.packet().track_descriptor
            descriptor.uuid, descriptor.process.pid, descriptor.process.process_name = uuid, pid, name
        return uuid

    def event(self, kind: int, track: int, time_ns: int, event: Event | None = None) -> Any:
        packet = self.packet(time_ns)
        body = packet.track_event
        body.type, body.track_uuid = kind, track
        if event is not None:
            body.name_iid = self.number(packet, "event_names", str(event["name"]))
            if event.get("cat"):
                body.category_iids.append(self.number(packet, "event_categories", event["cat"]))
            for key, value in event.get("args", {}).items():
                annotation = body.debug_annotations.add()
                annotation.name_iid = self.number(packet, "debug_annotation_names", key)
                _annotate(annotation, value)
        return packet

    def stage(self, time_ns: int, length_ns: int, event: Event) -> None:
        """Write work of a GPU as torch's own back end does."""
        packet = self.packet(time_ns)
        body, args = packet.gpu_render_stage_event, dict(event.get("args", {}))
        body.duration, body.gpu_id = length_ns, args.get("device", event["pid"])
        body.name_iid = self.number(packet, "event_names", str(event["name"]))
        body.stage_iid = self.number(packet, "gpu_specifications", _STAGES[event["cat"]])
        body.hw_queue_iid = self.number(packet, "gpu_specifications", f"[{event['tid']}] stream {event['tid']}")
        for field, key in (("grid_size", "grid"), ("workgroup_size", "block")):
            if (sizes := args.pop(key, None)) is not None:
                size = getattr(body.launch, field)
                size.x, size.y, size.z = sizes
        for key, name in _LAUNCH.items():
            if key in args:
                body.launch.args.add(name=name, uint_value=args.pop(key))
        for key, value in args.items():
            key = f"{key} id" if key in ("device", "stream", "context") else key
            text = value if isinstance(value, str) else json.dumps(value, default=float)
            body.extra_data.add(name=key, value=text)


def _annotate(annotation: Any, value: Any) -> None:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            _annotate(annotation.dict_entries.add(name=key), inner)
    elif isinstance(value, list) and value:
        for inner in value:
            _annotate(annotation.array_values.add(), inner)
    elif isinstance(value, bool):
        annotation.bool_value = value
    elif isinstance(value, int):
        annotation.int_value = value
    elif isinstance(value, (float, Decimal)):
        annotation.double_value = float(value)
    elif isinstance(value, str):
        annotation.string_value = value
    else:
        annotation.legacy_json_value = json.dumps(value)


class Converter:
    """The events of a Kineto trace as packets. `events` are then those events in the order of the packets."""

    def __init__(self, trace: dict[str, Any]) -> None:
        self.writer = PacketWriter()
        self.events: list[Event] = []
        self._base_ns = int(trace.get("baseTimeNanoseconds", 0))
        given = [event for event in trace["traceEvents"] if event.get("pid") not in _OWN]
        self.named = [event for event in given if event.get("ph") == "M" and event["name"].endswith("_name")]
        self._names = {(event["name"], event["pid"], event.get("tid")): event["args"]["name"] for event in self.named}
        self._processes = {event["pid"]: event["args"]["name"] for event in self.named if event["name"][0] == "p"}
        self.slices = [event for event in given if event.get("ph") == "X" and event.get("cat") != "Trace"]
        self.instants = [event for event in given if event.get("ph") == "i"]
        self.writer.anchor(self._base_ns + 7, self._base_ns + 7)

    def start_ns(self, event: Event) -> int:
        return self._base_ns + int(Decimal(event["ts"]) * 1000)

    def end_ns(self, event: Event) -> int:
        return self.start_ns(event) + int(Decimal(event.get("dur", 0)) * 1000)

    def track(self, event: Event, lane: int = 0) -> int:
        pid, tid = event["pid"], event["tid"]
        return self.writer.track(
            pid, tid, self._names.get(("thread_name", pid, tid), ""), self._processes.get(pid, ""), lane
        )

    def write_afterwards(self, slices: Sequence[Event]) -> None:
        """Write all begins and then all ends, as torch's own back end does."""
        for event in slices:
            self.writer.event(BEGIN, self.track(event), self.start_ns(event), event)
        for event in slices:
            self.writer.event(END, self.track(event), self.end_ns(event))
        self.events += slices

    def write_each(self, slices: Iterable[Event]) -> None:
        """Write each slice with its end behind it, as rocprofv3 does."""
        for event in slices:
            self.writer.event(BEGIN, self.track(event), self.start_ns(event), event)
            self.writer.event(END, self.track(event), self.end_ns(event))
            self.events.append(event)

    def write_stages(self, slices: Iterable[Event]) -> None:
        for event in slices:
            self.writer.stage(self.start_ns(event), self.end_ns(event) - self.start_ns(event), event)
            self.events.append(event)

    def write_live(self, slices: Iterable[Event]) -> None:
        """Write all in the order of time, as a program does that writes while it runs."""
        threads: dict[Any, list[Event]] = {}
        for event in sorted(slices, key=lambda event: (self.start_ns(event), -self.end_ns(event))):
            threads.setdefault((event["pid"], event["tid"]), []).append(event)
        rows: list[list[tuple[int, int, Event, int]]] = []
        for events in threads.values():
            starts, ends = [self.start_ns(event) for event in events], [self.end_ns(event) for event in events]
            for lane, own in _split(events, spread_overlapping(starts, ends)).items():
                rows.append(self._nest(own, lane))
        for time_ns, kind, event, lane in heapq.merge(*rows, key=lambda row: row[0]):
            self.writer.event(kind, self.track(event, lane), time_ns, event if kind == BEGIN else None)
            if kind == BEGIN:
                self.events.append(event)

    def _nest(self, events: list[Event], lane: int) -> list[tuple[int, int, Event, int]]:
        """Return begins and ends of nested slices, which are sorted by their begin."""
        rows: list[tuple[int, int, Event, int]] = []
        opened: list[Event] = []
        for event in events:
            while opened and self.end_ns(opened[-1]) <= self.start_ns(event):
                rows.append((self.end_ns(opened[-1]), END, opened.pop(), lane))
            rows.append((self.start_ns(event), BEGIN, event, lane))
            opened.append(event)
        return [*rows, *((self.end_ns(event), END, event, lane) for event in reversed(opened))]

    def write_instants(self) -> None:
        for event in self.instants:
            self.writer.event(INSTANT, self.track(event), self.start_ns(event), event)
        self.events += self.instants


def _split(events: list[Event], lanes: list[int]) -> dict[int, list[Event]]:
    found: dict[int, list[Event]] = {}
    for event, lane in zip(events, lanes, strict=True):
        found.setdefault(lane, []).append(event)
    return found


def read_json(path: Path) -> dict[str, Any]:
    """Return a Kineto trace with exact times: decimals in place of floats."""
    text = path.read_bytes()
    text = gzip.decompress(text) if path.suffix == ".gz" else text
    found = json.loads(text, strict=False, parse_float=Decimal)
    return found if isinstance(found, dict) else {"traceEvents": found}
