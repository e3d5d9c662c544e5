"""A trace format: its declaration, its options, its results and its errors."""

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
"""Called now and then with the fraction of the file that has been read, 0 to 1."""


def ignore(share: float) -> None: ...


Batches = Callable[[], Iterator[pa.RecordBatch]]


@dataclass(frozen=True)
class StepBounds:
    """Steps known from elsewhere, in time order without overlap: number, start and end (Unix ns) of each."""

    numbers: tuple[int, ...]
    starts_unix_ns: tuple[int, ...]
    ends_unix_ns: tuple[int, ...]

    @property
    def span_ns(self) -> int:
        """The time from the start of the first step to the end of the last, 0 without steps."""
        return self.ends_unix_ns[-1] - self.starts_unix_ns[0] if self.numbers else 0


@dataclass(frozen=True)
class ReadOptions:
    """Options for reading. `epoch_unix_ns` and `steps` come from an existing run; None takes them from the trace.

    `steps_from` selects the marks of steps: `optimizer`, `whole`, or a regular expression for their names. `scratch` is
    the folder for data that does not fit into memory, None for the system's own. `helpers` is the number of processes
    that may help with a long file.
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
    """Metadata of the traced process. `absolute` is true if `epoch_unix_ns` is wall-clock time, not an arbitrary zero.

    `end_ns` is the end of the trace in ns since `epoch_unix_ns`.
    """

    rank: int | None
    world_size: int | None
    devices: tuple[Device, ...] = ()
    epoch_unix_ns: int = 0
    absolute: bool = False
    end_ns: int = 0
    versions: dict[str, str] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class TraceTables:
    """The tables of one trace. Times are in ns since `facts.epoch_unix_ns`; `events_lost` counts unreadable events."""

    tables: StreamedTables
    facts: TraceFacts
    warnings: tuple[Warn, ...] = ()
    events_lost: int = 0
    beside: tuple[TraceTables, ...] = ()
    """The other ranks of a file with several ranks."""
    source: str = ""
    """The `source` of the file's TraceFormat, set by `read_trace`."""
    recorded: RankManifest | None = None
    """The rank's original manifest, if the file is an export of a Stepscope recording."""


def in_batches(build: Callable[[], pa.Table]) -> Batches:
    """Return a function that calls `build` anew at each call, and returns the table in batches."""
    return lambda: iter(build().to_batches())


class StreamedTables(Mapping[str, pa.Table]):
    """Tables that are built anew at each request, so that none stays in memory; threads may build `at_once` of them."""

    def __init__(self, streams: Mapping[str, Batches], at_once: int = 1) -> None:
        self._streams = streams
        self.at_once = at_once

    @classmethod
    def of(cls, tables: Mapping[str, pa.Table]) -> StreamedTables:
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
    """A trace format. `read` returns None for a file of another format, and raises TraceError for a broken file of this
    format.

    `source` becomes the `source` in the manifest of an imported run. Formats are tried by `order`, the lowest first.
    `other_names` is a regular expression for the ends of file names that have none of the `suffixes`. It must be valid
    in Python and in JavaScript.
    """

    name: str
    source: str
    suffixes: tuple[str, ...]
    order: int
    read: Callable[[Path, ReadOptions], TraceTables | None]
    other_names: str = ""


@contextmanager
def explain_failure(path: Path, where: Callable[[], str]) -> Iterator[None]:
    """Raise any failure in the block as a TraceError with the file and the place of the failure in the file.

    StepscopeError and OSError are raised unchanged; the caller reports them. Any other exception is considered a fault
    of the file, because files come from anywhere.
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
