"""Read one trace file in whatever format it is."""

from __future__ import annotations

from pathlib import Path

from collector.format.schema.errors import TraceError
from collector.plugins import find_plugins
from collector.traces import formats
from collector.traces.format import ReadOptions, TraceFormat, TraceTables


def read_trace(path: str | Path, options: ReadOptions | None = None) -> TraceTables:
    """Read a trace file into tables. Raises TraceError saying what is wrong with the file and where."""
    path = Path(path)
    if path.is_dir():
        raise TraceError(f"{path} is a directory, not a trace file")
    known: tuple[TraceFormat, ...] = find_plugins(formats, "FORMAT")
    for kind in sorted(known, key=lambda kind: kind.order):
        tables = kind.read(path, options or ReadOptions())
        if tables is not None:
            return tables
    names = ", ".join(kind.name for kind in known)
    raise TraceError(
        f"{path} is not a trace that Stepscope knows ({names}); give it a torch.profiler .json or .json.gz"
    )
