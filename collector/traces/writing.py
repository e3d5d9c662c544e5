"""Write trace events as text, column by column, without Python code per event. The file appears whole or not at all."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from collector.format.schema import writing
from collector.format.schema.errors import OutputError
from collector.format.timeline_rows import WAIT_COLOUR

Int64s: TypeAlias = "npt.NDArray[np.int64]"


class Sink(Protocol):
    def write(self, data: bytes, /) -> Any: ...


@contextmanager
def replacing(path: Path) -> Iterator[Sink]:
    """Yield a file that replaces the file at the path after the block. The file is compressed if the path ends in .gz.

    Raises OutputError if the file cannot be written, and then leaves no file.
    """
    try:
        if not path.name or path.is_dir():
            raise IsADirectoryError(21, "it is a directory")
        with writing.replacing(path) as raw:
            if path.suffix == ".gz":
                # Unpacking gives the file the name stored inside of it.
                with gzip.GzipFile(path.name, "wb", compresslevel=1, fileobj=raw) as packed:
                    yield packed
            else:
                yield raw
    except (OSError, ValueError) as error:
        if isinstance(error, ValueError) and "\0" not in str(path):
            raise
        reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else error
        raise OutputError(
            f"{path} cannot be written ({reason}); choose a path in a folder that you can write"
        ) from None


class EventWriter:
    """A writer of `{"traceEvents": [...], ...}`, piece by piece; `events` is the number of written events.

    `head` are the keys before the events.
    """

    def __init__(self, sink: Sink, head: Mapping[str, Any] | None = None) -> None:
        self.events = 0
        self._sink = sink
        sink.write(b"{")
        for key, value in (head or {}).items():
            sink.write(msgspec.json.encode(key) + b":" + msgspec.json.encode(value) + b",\n")
        sink.write(b'"traceEvents":[\n')

    def write_event(self, event: dict[str, Any]) -> None:
        """Write one event. This is slow, and meant for the few events that name processes and threads."""
        self._sink.write((",\n" if self.events else "").encode() + msgspec.json.encode(event))
        self.events += 1

    def write_process(self, pid: int, name: str, place: int) -> None:
        self._write_names("process", (pid, 0), name, place)

    def write_thread(self, pid: int, tid: int, name: str, place: int) -> None:
        self._write_names("thread", (pid, tid), name, place)

    def _write_names(self, kind: str, owner: tuple[int, int], name: str, place: int) -> None:
        common = {"ph": "M", "pid": owner[0], "tid": owner[1]}
        self.write_event({**common, "name": f"{kind}_name", "args": {"name": name}})
        self.write_event({**common, "name": f"{kind}_sort_index", "args": {"sort_index": place}})

    def write_columns(self, template: str, *values: pa.Array) -> None:
        """Write one event per row. The zero characters in `template` are replaced in turn by the row's `values`."""
        rows = len(values[0])
        if not rows:
            return
        lead = ",\n" if self.events else ""
        first, *others = template.split("\0")
        columns = chain.from_iterable(zip(values, map(pa.scalar, others), strict=True))
        text = pc.binary_join_element_wise(pa.scalar(f",\n{first}"), *columns, "")
        # The text of all rows lies in one buffer. It is written unchanged, except for the comma before the first row.
        offsets = np.frombuffer(text.buffers()[1], np.int32)[text.offset : text.offset + rows + 1]
        skipped = 0 if lead else len(",\n")
        written = memoryview(text.buffers()[2])[int(offsets[0]) + skipped : int(offsets[-1])]
        self._sink.write(written)  # type: ignore[arg-type]  # as good as bytes
        self.events += rows

    def close(self, tail: dict[str, Any]) -> None:
        text = "".join(f",\n{json.dumps(key)}:{json.dumps(value, ensure_ascii=False)}" for key, value in tail.items())
        self._sink.write(b"\n]" + text.encode() + b"}\n")


def name_process(owner: str, process: str) -> str:
    return ": ".join(filter(None, (owner, process)))


def name_overlapping(thread: str, lane: int) -> str:
    """Return the displayed name of a thread, or of its extra lane for overlapping slices."""
    return f"{thread} (overlapping {lane})" if lane else thread


def spread_overlapping(starts: list[int], ends: list[int]) -> list[int]:
    """Return a lane for each span of a thread: the first lane on which it fits, inside an open span or after it.

    `starts` must be sorted. A viewer drops spans that overlap on one row without nesting.
    """
    open_ends: list[list[int]] = []
    lanes = []
    for start, end in zip(starts, ends, strict=True):
        lane = next((n for n, stack in enumerate(open_ends) if _has_room(stack, start, end)), len(open_ends))
        if lane == len(open_ends):
            open_ends.append([])
        open_ends[lane].append(end)
        lanes.append(lane)
    return lanes


def _has_room(open_ends: list[int], start: int, end: int) -> bool:
    while open_ends and open_ends[-1] <= start:
        open_ends.pop()
    return not open_ends or end <= open_ends[-1]


def write_slices(writer: EventWriter, columns: SliceColumns) -> None:
    writer.write_columns(
        '{"ph":"X","pid":\0,"tid":\0,"ts":\0,"dur":\0,"name":\0,"cat":\0,"args":{\0}}',
        to_text(columns.pid),
        to_text(columns.tid),
        to_microseconds(columns.start),
        to_microseconds(columns.duration),
        quote(columns.name),
        _colour(columns.category),
        columns.args,
    )


class SliceColumns(msgspec.Struct, frozen=True):
    """Slices to write. `args` is the content of a JSON object, without braces."""

    pid: npt.NDArray[np.integer]
    tid: npt.NDArray[np.integer]
    start: Int64s
    duration: Int64s
    name: pa.DictionaryArray
    category: pa.DictionaryArray
    args: pa.Array


def write_flows(writer: EventWriter, phase: str, place: dict[str, npt.NDArray[Any]]) -> None:
    """Write one end of the arrows between slices: starts if `phase` is "s", ends if "f". `place` has the columns pid,
    tid, start and id.
    """
    end = ',"bp":"e"' if phase == "f" else ""
    writer.write_columns(
        f'{{"ph":"{phase}","cat":"launch","name":"launch"{end},"pid":\0,"tid":\0,"ts":\0,"id":\0}}',
        to_text(place["pid"]),
        to_text(place["tid"]),
        to_microseconds(place["start"]),
        to_text(place["id"]),
    )


def write_counter(writer: EventWriter, pid: int, name: str, unit: str, points: tuple[Int64s, pa.Array]) -> None:
    template = f'{{"ph":"C","pid":{pid},"tid":0,"name":{_dump(name)},"ts":\0,"args":{{{_dump(unit or "value")}:\0}}}}'
    writer.write_columns(template, to_microseconds(points[0]), points[1].cast(pa.string()))


def to_text(values: npt.NDArray[np.integer]) -> pa.Array:
    return pa.array(values).cast(pa.string())


def to_microseconds(values_ns: npt.NDArray[np.integer]) -> pa.Array:
    """Return nanoseconds as decimal microseconds with three places, exactly."""
    whole, rest = np.divmod(np.abs(values_ns), 1000)
    digits = pc.utf8_lpad(pa.array(rest).cast(pa.string()), 3, "0")
    text = pc.binary_join_element_wise(pa.array(whole).cast(pa.string()), digits, ".")
    if (values_ns < 0).any():
        text = pc.binary_join_element_wise(pa.array(np.where(values_ns < 0, "-", "")), text, "")
    return text


def quote(values: pa.DictionaryArray) -> pa.Array:
    """Return a dictionary column as JSON strings; each distinct value is escaped once."""
    quoted = pa.array([_dump(value or "") for value in values.dictionary.to_pylist()], pa.string())
    return quoted.take(values.indices)


def _colour(categories: pa.DictionaryArray) -> pa.Array:
    """Return categories as JSON strings. The category of a wait is followed by a key for the colour of the wait."""
    quoted = [
        _dump(value or "") + (f',"cname":{_dump(WAIT_COLOUR)}' if value == "wait" else "")
        for value in categories.dictionary.to_pylist()
    ]
    return pa.array(quoted, pa.string()).take(categories.indices)


def inside_objects(values: pa.DictionaryArray) -> pa.Array:
    """Return the text between the braces of each JSON object, null for an empty object.

    A text that is not an object becomes the value of the key `args`.
    """
    inner = pa.array([_inside(value) for value in values.dictionary.to_pylist()], pa.string())
    return inner.take(values.indices)


def _inside(text: str | None) -> str | None:
    if not text:
        return None
    try:
        found = isinstance(msgspec.json.decode(text), dict)
    except msgspec.DecodeError:
        found = False
    return text.strip()[1:-1].strip() or None if found else f'"args":{_dump(text)}'


def _dump(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
