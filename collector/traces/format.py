"""What a trace format is, what it is asked, and what it answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from collector.format.arrow_schemas import arrow_schema
from collector.format.schema.errors import TraceError
from collector.format.schema.manifest import Device, RankManifest, Warn

Progress = Callable[[float], None]
"""Called now and then with the share of the file that has been read, 0 to 1."""


Batches = Callable[[], Iterator[pa.RecordBatch]]


@dataclass(frozen=True)
class StepBounds:
    """Steps that somebody else knows: number, start and end (unix ns) of each, in time order and without overlap."""

    numbers: tuple[int, ...]
    starts_unix_ns: tuple[int, ...]
    ends_unix_ns: tuple[int, ...]

    @property
    def span_ns(self) -> int:
        """From the start of the first step to the end of the last one, 0 for no steps."""
        return self.ends_unix_ns[-1] - self.starts_unix_ns[0] if self.numbers else 0


@dataclass(frozen=True)
class ReadLimits:
    """How much one import may take: bytes of a file when unpacked, and seconds in all.

    `deadline_s` is when the time is over on the monotonic clock, None before it has begun.
    """

    unpacked_bytes: int = 32 << 30
    seconds: float = 3600.0
    deadline_s: float | None = None

    def begin(self) -> ReadLimits:
        """Return the limits of an import that begins now."""
        return replace(self, deadline_s=time.monotonic() + self.seconds)

    def check(self, path: Path, read_bytes: int = 0) -> None:
        """Raise TraceError if a file has taken more than that."""
        if read_bytes > self.unpacked_bytes:
            raise TraceError(
                f"{path} unpacks to more than {self.unpacked_bytes / (1 << 30):,.3g} GiB, the limit of an import; "
                "record fewer steps, or raise it: profiler-server import --limit-gib"
            )
        if self.deadline_s is not None and time.monotonic() > self.deadline_s:
            raise TraceError(
                f"{path} takes longer than {self.seconds / 60:,.3g} min to import, the limit; "
                "record fewer steps, or raise it: profiler-server import --limit-minutes"
            )


@dataclass(frozen=True)
class ReadOptions:
    """How to read. `epoch_unix_ns` and `steps` place a trace in a run that has both; None lets the trace decide.

    `steps_from` says by what to tell steps: `optimizer`, `whole`, or a regular expression for their names.
    `scratch` is the folder for what does not fit into memory, None for the system's own. `helpers` is how many processes
    may help this one with a long file.
    """

    epoch_unix_ns: int | None = None
    steps: StepBounds | None = None
    steps_from: str | None = None
    scratch: Path | None = None
    on_progress: Progress | None = None
    limits: ReadLimits = ReadLimits()
    helpers: int = 0


@dataclass(frozen=True)
class TraceFacts:
    """What the trace says of the process that it was taken in. `absolute` tells whether its times are wall-clock."""

    rank: int | None
    world_size: int | None
    devices: tuple[Device, ...]
    epoch_unix_ns: int
    absolute: bool
    end_ns: int
    versions: dict[str, str] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class TraceTables:
    """The tables of one trace. Times are ns since `facts.epoch_unix_ns`; `events_lost` counts what could not be read."""

    tables: StreamedTables
    facts: TraceFacts
    warnings: tuple[Warn, ...] = ()
    events_lost: int = 0
    beside: tuple[TraceTables, ...] = ()
    """The other ranks of a file that holds several."""
    recorded: RankManifest | None = None
    """How the rank fared, where Stepscope recorded it and its own export is read."""


def _list_batches(table: pa.Table) -> Iterator[pa.RecordBatch]:
    return iter(table.to_batches())


class StreamedTables(Mapping[str, pa.Table]):
    """Tables that are built whenever they are asked for, whole or batch by batch, so that none is held.

    `at_once` is how many of them may be built at the same time, by threads.
    """

    def __init__(self, streams: Mapping[str, Batches], at_once: int = 1) -> None:
        self._streams = streams
        self.at_once = at_once

    @classmethod
    def of(cls, tables: Mapping[str, pa.Table]) -> StreamedTables:
        """Return tables that are built already."""
        return cls({name: partial(_list_batches, table) for name, table in tables.items()})

    def stream(self, name: str) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a table."""
        return self._streams[name]()

    def __getitem__(self, name: str) -> pa.Table:
        return pa.Table.from_batches(self.stream(name), schema=arrow_schema(name)).unify_dictionaries()

    def __iter__(self) -> Iterator[str]:
        return iter(self._streams)

    def __len__(self) -> int:
        return len(self._streams)


class TraceFormat(Protocol):
    """A format: `read` returns None for "not mine" and raises TraceError for "mine, but broken"."""

    name: str
    order: int
    """Formats are asked from the lowest on."""

    def read(self, path: Path, options: ReadOptions) -> TraceTables | None: ...
