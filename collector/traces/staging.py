"""Convert one trace file to tables in a folder of its own, in any process. An import has one such task per file."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from collector.format import parts
from collector.format.schema import layout, removal
from collector.format.schema.manifest import RankManifest, Signal, Warn, decode_manifest, encode_manifest
from collector.format.schema.removal import Marked, make_folder, move, remove_tree
from collector.format.schema.tables import TABLES
from collector.format.shifting import TIME, shift_manifest, shift_rows
from collector.traces.format import ReadOptions, StreamedTables, TraceFacts, TraceTables, explain_failure
from collector.traces.limits import ReadLimits
from collector.traces.reading import UnknownTraceError, read_trace

_SHIFTED = tuple(name for name, table in TABLES.items() if TIME in table.column_names)
_NOT_IN_TRACES = ("fetches", "queues", "stages", "resources", "ranges", "compiles")
_MOVED, _READY = ".moved", "ready"
_OF_TRY = Marked(re.compile(r"\.moved"))
_OF_IMPORT = (
    *("rank", "host", "pid", "pid_started", "state", "started_unix_ns", "heartbeat_unix_ns", "ended_unix_ns"),
)
_IN_TABLES = ("steps", "phases", "window", "memory")


@dataclass(frozen=True)
class StagingTask:
    """A trace to read. The folder for its tables is `folder` with a suffix that differs at each attempt."""

    path: Path
    folder: Path
    options: ReadOptions
    started_unix_ns: int
    is_sure: bool = True
    """Whether the file must be a trace. Files found in a folder need not be: others are skipped."""


@dataclass(frozen=True)
class StagedRank:
    """A rank of a trace, with its tables in `folder`. Its rank number is not final yet."""

    path: Path
    folder: Path
    facts: TraceFacts
    source: str

    @property
    def start_ns(self) -> int:
        return self.facts.epoch_unix_ns

    @property
    def end_ns(self) -> int:
        return self.facts.epoch_unix_ns + self.facts.end_ns


@dataclass(frozen=True)
class ShiftTask:
    folder: Path
    shift_ns: int


def stage_trace(task: StagingTask) -> tuple[StagedRank, ...]:
    """Read a trace and write its ranks' tables; () for a skipped file. Raises TraceError, or OSError of the disk."""
    task.folder.parent.mkdir(parents=True, exist_ok=True)
    place = task.folder.with_name(f"{task.folder.name}-{os.urandom(4).hex()}")
    make_folder(place)
    options = replace(task.options, limits=task.options.limits.begin())
    staged: list[StagedRank] = []
    with explain_failure(task.path, lambda: "after its events had been read"):
        try:
            trace = read_trace(task.path, replace(options, scratch=place))
        except UnknownTraceError:
            if task.is_sure:
                raise
            return ()
        for number, one in enumerate((trace, *trace.beside)):
            folder = place / str(number)
            _write_rank(folder, one, replace(task, options=options))
            staged.append(StagedRank(task.path, folder, one.facts, trace.source))
    return tuple(staged)


def place_rank(staged: StagedRank, run_path: Path, rank: int) -> None:
    _revise(staged.folder, lambda manifest: replace(manifest, rank=rank))
    target = layout.rank_path(run_path, rank)
    target.parent.mkdir(parents=True, exist_ok=True)
    move(staged.folder, target)


def warn_of_rank(run_path: Path, rank: int, warning: Warn) -> None:
    folder = layout.rank_path(run_path, rank)
    _revise(folder, lambda manifest: replace(manifest, warnings=(*manifest.warnings, warning)))


def _revise(folder: Path, change: Callable[[RankManifest], RankManifest], target: Path | None = None) -> None:
    """Write the changed manifest of a rank in place of the old one; with `target`, into that folder instead."""
    file = folder / layout.RANK_FILE
    manifest = decode_manifest(RankManifest, file.read_text(encoding="utf-8"), str(file))
    ((target or folder) / layout.RANK_FILE).write_text(encode_manifest(change(manifest)), encoding="utf-8")


def shift_rank(task: ShiftTask) -> None:
    """Shift the times of a rank. An interrupted attempt is resumed, so that nothing is shifted twice."""
    moved = task.folder / _MOVED
    if not (moved / _READY).exists():
        with suppress(FileNotFoundError):
            remove_tree(moved, _OF_TRY)
        make_folder(moved)
        _write_moved(task, moved)
        (moved / _READY).touch()
    for path in moved.iterdir():
        if path.name != _READY:
            removal.replace(path, task.folder / path.name)
    remove_tree(moved, _OF_TRY)


def _write_moved(task: ShiftTask, moved: Path) -> None:
    for table in _SHIFTED:
        if not parts.find_files(task.folder, table):
            continue
        rows = shift_rows(parts.read_table(task.folder, table), task.shift_ns)
        parts.write_table(rows, layout.table_file(moved, table))
    _revise(task.folder, lambda manifest: shift_manifest(manifest, task.shift_ns), moved)


def _write_rank(folder: Path, trace: TraceTables, task: StagingTask) -> None:
    path = task.path
    folder.mkdir(parents=True)
    _write_tables(folder, trace.tables, task)
    missing = [name for name in _NOT_IN_TRACES if name not in trace.tables]
    reason = f"Traces do not hold this; runs that Stepscope records do ({path.name} was imported)."
    manifest = RankManifest(
        rank=0,
        host="",
        pid=0,
        state="imported",
        started_unix_ns=trace.facts.epoch_unix_ns,
        heartbeat_unix_ns=task.started_unix_ns,
        ended_unix_ns=trace.facts.epoch_unix_ns + trace.facts.end_ns,
        devices=trace.facts.devices,
        signals=(
            *(Signal(signal, "on") for signal in _IN_TABLES),
            Signal("data_pipeline", "off", reason) if "queues" in missing else Signal("data_pipeline", "on"),
            *(Signal(signal, "off", reason) for signal in missing),
        ),
        warnings=tuple(Warn(entry.code, entry.text) for entry in trace.warnings),
        events_lost=trace.events_lost,
        facts=dict(trace.facts.facts),
    )
    if trace.recorded is not None:  # what it says of the recording process and its files is no longer so
        windows = tuple(replace(window, trace_file=None) for window in trace.recorded.windows)
        own = {name: getattr(manifest, name) for name in _OF_IMPORT}
        manifest = replace(trace.recorded, **own, windows=windows)
    (folder / layout.RANK_FILE).write_text(encode_manifest(manifest), encoding="utf-8")


def _write_tables(folder: Path, tables: StreamedTables, task: StagingTask) -> None:
    def write(table: str) -> None:
        batches = _limit(tables.stream(table), task.path, task.options.limits)
        parts.write_batches(batches, table, layout.table_file(folder, table))

    if tables.at_once == 1:
        for table in tables:
            write(table)
        return
    with ThreadPoolExecutor(tables.at_once) as threads:
        writing = [threads.submit(write, table) for table in tables]
        try:
            for one in writing:
                one.result()
        finally:
            for one in writing:
                one.cancel()


def _limit(batches: Iterator[pa.RecordBatch], path: Path, limits: ReadLimits) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        limits.check(path)
        yield batch
