"""Trace files: how they differ from other JSON, which traces were imported already, and names for their runs."""

from __future__ import annotations

import itertools
import os
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from collector.format.finding import SKIPPED_NAMES, JsonFile
from collector.format.schema.layout import PROFILER_FOLDER
from collector.traces.reading import SUFFIXES
from profiler_server.store.headline import RunEntry

UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_SUFFIX = re.compile(rf"(\.pt)?(\.trace)?({'|'.join(map(re.escape, SUFFIXES))})$", re.IGNORECASE)
_LONGEST = 100
_NOT_LISTED = SKIPPED_NAMES | {PROFILER_FOLDER}
"""Folders in which the list searches for no run."""


def name_run(file_name: str) -> str:
    """Return a run name for a trace, made from its file name and safe as a folder name."""
    name = UNSAFE.sub("-", _SUFFIX.sub("", file_name)).strip("-.")[:_LONGEST] or "trace"
    return f"{name}-trace" if name in _NOT_LISTED else name


def find_free_name(base_dir: Path, name: str) -> str:
    """Return the name, with a number appended if the name is taken."""
    numbered = (f"{name}-{number}" for number in itertools.count(2))
    return next(free for free in itertools.chain([name], numbered) if not os.path.lexists(base_dir / free))


HEAD_BYTES = 32 * 1024
"""Bytes read from the beginning of a file. The text before the events may take tens of kilobytes in a large job."""
_GZIP = b"\x1f\x8b"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_EVENTS = re.compile(rb'"traceEvents"\s*:')
_KINETO = re.compile(rb'"schemaVersion"\s*:.*"(deviceProperties|distributedInfo)"\s*:', re.DOTALL)
_EXPORTED = re.compile(rb'\{\s*"stepscope"\s*:')
_EVENT = re.compile(rb'"ph"\s*:\s*"')
_JOB = re.compile(rb'"distributedInfo"\s*:\s*\{([^{}\[\]]{0,500})')
_RANK = re.compile(rb'"rank"\s*:\s*"?(\d{1,7})\b')
_WORLD_SIZE = re.compile(rb'"world_size"\s*:\s*"?(\d{1,7})\b')
_RANK_IN_NAME = re.compile(r"rank[_\-.]?(\d{1,7})", re.IGNORECASE)


@dataclass(frozen=True)
class TraceFile:
    """A file that begins like a trace. `rank` is from its beginning or its name, `world_size` from its beginning only;
    None if unknown."""

    path: Path
    size_bytes: int
    rank: int | None = None
    world_size: int | None = None


class TraceFinder:
    """A finder of traces among JSON files, which rereads only changed files. Not for two threads at once."""

    def __init__(self) -> None:
        self._seen: dict[JsonFile, TraceFile | None] = {}

    def find(self, files: Iterable[JsonFile]) -> tuple[TraceFile, ...]:
        self._seen = {file: self._seen[file] if file in self._seen else recognize_trace(file) for file in files}
        return tuple(trace for trace in self._seen.values() if trace is not None)


def recognize_trace(file: JsonFile) -> TraceFile | None:
    """Return a trace file with its rank and world size, or None if the file is no trace or is unreadable."""
    try:
        head = _read_head(file.path).removeprefix(_BYTE_ORDER_MARK).lstrip()
    except (OSError, zlib.error):
        return None
    if not _begins_like_trace(head):
        return None
    job = _JOB.search(head)
    told = job.group(1) if job else b""
    rank, world_size = _RANK.search(told), _WORLD_SIZE.search(told)
    named = _RANK_IN_NAME.search(file.path.name)
    return TraceFile(
        file.path,
        file.size_bytes,
        int(rank.group(1)) if rank else int(named.group(1)) if named else None,
        int(world_size.group(1)) if world_size else None,
    )


def leave_imported(traces: Sequence[TraceFile], runs: Iterable[RunEntry]) -> tuple[TraceFile, ...]:
    """Return the traces that no run was imported from. A trace is identified by the name and size of its file."""
    imported = {source for entry in runs for source in _list_sources(entry)}
    if not imported:
        return tuple(traces)
    named = ((clean_file_name(trace.path.name), trace) for trace in traces)
    return tuple(trace for name, trace in named if not imported & {(name, trace.size_bytes), (name, None)})


def group_traces(traces: Iterable[TraceFile]) -> tuple[tuple[TraceFile, ...], ...]:
    """Return traces grouped by job: traces in one folder with the same world size and distinct ranks.

    Groups are in order of folder depth, then of path.
    """
    jobs: dict[tuple[Path, int | None], list[TraceFile]] = {}
    alone = []
    for trace in traces:
        if trace.rank is None:
            alone.append(trace)
        else:
            jobs.setdefault((trace.path.parent, trace.world_size), []).append(trace)
    groups: list[tuple[TraceFile, ...]] = [(trace,) for trace in alone]
    for job in jobs.values():
        if max(Counter(trace.rank for trace in job).values()) == 1:
            groups.append(tuple(sorted(job, key=lambda trace: trace.rank or 0)))
        else:
            groups += [(trace,) for trace in job]
    return tuple(sorted(groups, key=lambda group: (len(group[0].path.parts), group[0].path)))


def _read_head(path: Path) -> bytes:
    # Neither a link nor a pipe that took the file's place since it was listed may be followed or waited for.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        head = file.read(HEAD_BYTES)
    if head.startswith(_GZIP):
        return zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(head, HEAD_BYTES)
    return head


def _begins_like_trace(head: bytes) -> bool:
    if head.startswith(b"["):
        return _EVENT.search(head) is not None
    if not head.startswith(b"{"):
        return False
    return any(pattern.search(head) for pattern in (_EVENTS, _KINETO)) or _EXPORTED.match(head) is not None


def _list_sources(entry: RunEntry) -> list[tuple[str, int | None]]:
    files, sizes = entry.manifest.metadata.get("files"), entry.manifest.metadata.get("file_bytes")
    if not entry.manifest.is_imported or not isinstance(files, list):
        return []
    if not isinstance(sizes, list) or len(sizes) != len(files):
        sizes = [None] * len(files)
    return [
        (clean_file_name(str(name)), size if isinstance(size, int) else None)
        for name, size in zip(files, sizes, strict=True)
    ]


def clean_file_name(name: str) -> str:
    """Return a name in the form that an upload stores."""
    return UNSAFE.sub("-", name)[-150:].lstrip("-.")
