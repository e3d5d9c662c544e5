"""Read traces that Stepscope exported. They hold the original tables, which are read instead of the events."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from collector.format import carried
from collector.format.carried import Carried, UnreadableError
from collector.format.schema.errors import StepscopeError
from collector.format.schema.manifest import RankManifest
from collector.traces.format import ReadOptions, StreamedTables, TraceFacts, TraceFormat, TraceTables
from collector.traces.source import Source


def read(path: Path, options: ReadOptions) -> TraceTables | None:
    """Read an export of Stepscope; None for any other file, for damaged tables, or if the options choose the steps."""
    if options.steps is not None or options.steps_from is not None:
        return None
    text = _read_front(path, options)
    if text is None:
        return None
    try:
        found = carried.decode(text)
        ranks = [_describe(found, manifest, tables) for manifest, tables in found.unpack()]
    except (UnreadableError, StepscopeError):
        return None
    return replace(ranks[0], beside=tuple(ranks[1:]))


def _read_front(path: Path, options: ReadOptions) -> bytes | None:
    """Return the text of the tables at the start of the file; None for a file that holds no tables."""
    text = b""
    for block in Source(path, options.on_progress).read_blocks():
        text += block
        if not text.startswith(carried.START[: len(text)]) or len(text) > 2 * carried.MOST_BYTES:
            return None
        end = text.find(carried.END, max(0, len(text) - len(block) - len(carried.END)))
        if end >= 0:
            return text[len(carried.START) : end]
    return None


def _describe(found: Carried, manifest: RankManifest, tables: dict[str, pa.Table]) -> TraceTables:
    ended = manifest.ended_unix_ns or manifest.started_unix_ns
    facts = TraceFacts(
        manifest.rank,
        found.world_size,
        manifest.devices,
        found.epoch_unix_ns,
        True,
        max(ended - found.epoch_unix_ns, 0),
        {},
        dict(manifest.facts),
    )
    return TraceTables(StreamedTables.of(tables), facts, manifest.warnings, manifest.events_lost, recorded=manifest)


FORMAT = TraceFormat("Stepscope's own export", "export", (".json", ".json.gz"), 0, read)
