"""Traces read in small pieces by one process and by several, and compared."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from collector.format.schema.errors import TraceError
from collector.traces import source
from collector.traces.format import TraceTables
from collector.traces.kineto import reader
from collector.traces.kineto.parallel.pool import Pool, read_ahead
from collector.traces.reading import read_trace

PIECE_BYTES = 4096


class KeptPool(Pool):
    """A pool that goes on from trace to trace; `close` ends it."""

    def __enter__(self) -> Pool:
        return self if self._workers else super().__enter__()

    def __exit__(self, *_: object) -> None: ...

    def close(self) -> None:
        super().__exit__(None, None, None)


@contextmanager
def small_pieces(pool: Pool | None, size: int = PIECE_BYTES) -> Iterator[None]:
    """Read traces in pieces of about so many bytes, with a pool or by the reader alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(source, "BLOCK_BYTES", size)
        patch.setattr(source, "_LEAST_BYTES", size)
        patch.setattr(reader, "_choose_ahead", lambda *_: None if pool is None else partial(read_ahead, pool))
        yield


def tell(path: Path, pool: Pool | None, size: int = PIECE_BYTES) -> Any:
    """Return all that a trace holds as it is read so, or why it is refused."""
    with small_pieces(pool, size):
        try:
            return [_tell_rank(one) for trace in [read_trace(path)] for one in (trace, *trace.beside)]
        except TraceError as error:
            return str(error)


def _tell_rank(trace: TraceTables) -> Any:
    tables = {name: list(trace.tables.stream(name)) for name in trace.tables}
    return tables, trace.facts, trace.warnings, trace.events_lost
