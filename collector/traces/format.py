"""What a trace format is, what it is asked, what it answers, and how it fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from collector.format.schema.errors import StepscopeError, TraceError
from collector.format.schema.manifest import Device, RankManifest, Warn
from collector.format.stored_files import arrow_schema
from collector.traces.limits import ReadLimits

_LONGEST_REASON = 200
Progress = Callable[[float], None]
"""Called now and then with the share of the file that has been read, 0 to 1."""


def ignore(share: float) -> None:
    """Take progress that nobody asks for."""


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
    on_progress: Progress = ignore
    limits: ReadLimits = field(default_factory=ReadLimits)
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


def in_batches(build: Callable[[], pa.Table]) -> Batches:
    """Return the batches of a table that is built whole when it is asked for."""
    return lambda: iter(build().to_batches())


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
        return cls({name: in_batches(partial(tables.__getitem__, name)) for name in tables})

    def stream(self, name: str) -> Iterator[pa.RecordBatch]:
        return self._streams[name]()

    def __getitem__(self, name: str) -> pa.Table:
        return pa.Table.from_batches(self.stream(name), schema=arrow_schema(name)).unify_dictionaries()

    def __iter__(self) -> Iterator[str]:
        return iter(self._streams)

    def __len__(self) -> int:
        return len(self._streams)


@dataclass(frozen=True)
class TraceFormat:
    """A format: `read` returns None for "not mine" and raises TraceError for "mine, but broken".

    Formats are asked by `order`, the lowest first. `other_names` is what names of files without one of the suffixes end
    like: a regular expression that Python and JavaScript read alike.
    """

    name: str
    suffixes: tuple[str, ...]
    order: int
    read: Callable[[Path, ReadOptions], TraceTables | None]
    other_names: str = ""


@contextmanager
def explain_failure(path: Path, where: Callable[[], str]) -> Iterator[None]:
    """Turn a failure into one line that names the file and the place in it.

    Our own errors pass, and those of the disk, which the caller tells of. Files come from anywhere, so whatever the
    libraries below raise at one is a fault of that file.
    """
    try:
        yield
    except (StepscopeError, OSError):
        raise
    except Exception as error:
        raise TraceError(f"{path} cannot be read: {_name_error(error)} ({where()})") from error


def _name_error(error: Exception) -> str:
    if isinstance(error, MemoryError):
        return "it needs more memory than there is"
    reason = " ".join(str(error).split())[:_LONGEST_REASON]
    return f"{type(error).__name__}: {reason}" if reason else type(error).__name__
