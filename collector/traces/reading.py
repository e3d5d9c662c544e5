"""All trace formats: the names of their files, and a reader for a file of any format."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from collector.format.packed import SUFFIX as PACK_SUFFIX
from collector.format.schema.errors import TraceError
from collector.plugins import find_plugins
from collector.traces import formats
from collector.traces.format import ReadOptions, TraceFormat, TraceTables

FORMATS: tuple[TraceFormat, ...] = tuple(sorted(find_plugins(formats, "FORMAT"), key=lambda kind: kind.order))
SUFFIXES = (*dict.fromkeys(suffix for kind in FORMATS for suffix in kind.suffixes), PACK_SUFFIX)
NAME_PATTERN = "|".join((*map(re.escape, SUFFIXES), *(kind.other_names for kind in FORMATS if kind.other_names)))
NAME_PATTERN = f"({NAME_PATTERN})$"
"""The endings of the names of trace files and packed runs, in lower or upper case: a regular expression for Python and JavaScript."""
_NAMES = re.compile(NAME_PATTERN, re.IGNORECASE)


class UnknownTraceError(TraceError):
    """The file is of no known format."""


def is_trace_name(name: str) -> bool:
    return _NAMES.search(name) is not None


def describe_suffixes() -> str:
    *others, last = SUFFIXES
    return f"{', '.join(others)} or {last}"


def read_trace(path: str | Path, options: ReadOptions | None = None) -> TraceTables:
    """Read a trace file. Raises TraceError that names fault and place, UnknownTraceError for another kind of file."""
    path = Path(path)
    if path.is_dir():
        raise TraceError(f"{path} is a directory, not a trace file")
    for kind in FORMATS:
        tables = kind.read(path, options or ReadOptions())
        if tables is not None:
            return replace(tables, source=kind.source)
    names = ", ".join(kind.name for kind in FORMATS)
    raise UnknownTraceError(f"{path} is not a trace that Stepscope knows ({names}); give it a trace of torch.profiler")
