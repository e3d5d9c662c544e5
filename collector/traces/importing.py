"""Make a run of trace files: read each, write its tables, and put the whole run in its place at once."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from collector.format import parts
from collector.format.run import Run, open_run
from collector.format.schema import layout
from collector.format.schema.errors import OutputError, TraceError
from collector.format.schema.manifest import RankManifest, RunManifest, Signal, Warn, decode_manifest, encode_manifest
from collector.format.schema.tables import TABLES
from collector.format.schema.writing import sync_parents, sync_tree
from collector.traces.failures import explain_failure
from collector.traces.format import Progress, ReadLimits, ReadOptions, TraceTables
from collector.traces.ranks import Placed, Placing
from collector.traces.reading import read_trace
from collector.version import __version__

_TRACE_SUFFIXES = (".json", ".json.gz", ".parquet", ".pkl", ".pickle")
_RANK_DUMP = re.compile(r"rank_?\d{1,9}$")
"""What the Flight Recorder names its dumps: a prefix that the user may choose, and the rank."""
_SHIFTED = tuple(name for name, table in TABLES.items() if any(column.name == "start_ns" for column in table.columns))
_MOST_FILES = 100_000
_MOST_LISTED = 1_000
_NOT_IN_TRACES = ("fetches", "queues", "stages", "resources", "ranges", "compiles")
_IN_TABLES = ("steps", "phases", "window", "memory")


def import_trace(
    paths: str | Path | Sequence[str | Path],
    run_path: str | Path,
    *,
    name: str | None = None,
    steps_from: str | None = None,
    on_progress: Progress | None = None,
    limits: ReadLimits | None = None,
) -> Run:
    """Make a run at `run_path` of one trace, of one trace per rank, or of a folder of such traces.

    `steps_from` tells steps by hand: `optimizer`, `whole`, or a regular expression for the names of slices. `limits` say
    how much a file may unpack to and how long all of it may take.
    Nothing is left behind when it fails, and a run that is there already is not touched. Raises TraceError for a file
    that cannot be read, for two files of the same rank and for files that cannot be ranks of one job, OutputError if
    the run cannot be written.
    """
    files = _list_files([paths] if isinstance(paths, (str, Path)) else list(paths))
    target = Path(run_path).expanduser().absolute()
    if layout.profiler_path(target).exists():
        raise OutputError(f"{target} holds a run already; choose another name")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    except OSError as error:
        raise OutputError(f"{target.parent} cannot be written: {error.strerror or error}") from None
    try:
        options = ReadOptions(None, None, steps_from, scratch, on_progress, (limits or ReadLimits()).begin())
        _write_run(files, scratch, name or target.name, options)
        _move(scratch, target)
    except OSError as error:
        raise OutputError(f"{target} cannot be written: {error.strerror or error}") from None
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return open_run(target)


def _list_files(paths: Iterable[str | Path]) -> list[Path]:
    """Return the trace files of the given files and folders, in order. Raises TraceError naming what is not there."""
    files: list[Path] = []
    for given in paths:
        path = Path(given).expanduser()
        if path.is_dir():
            found = [p for p in path.iterdir() if _is_trace_name(p.name)]
            found.sort(key=lambda p: _order_name(p.name))
            if not found:
                raise TraceError(f"{path} is a folder without a trace file (.json, .json.gz or .parquet)")
            files.extend(found)
        elif path.exists():
            files.append(path)
        else:
            raise TraceError(f"{path} does not exist")
    if not files:
        raise TraceError("no trace file was given")
    if len(files) > _MOST_FILES:
        raise TraceError(f"{len(files)} trace files are more than one run may have ({_MOST_FILES})")
    return files


def _is_trace_name(name: str) -> bool:
    return not name.startswith(".") and (name.endswith(_TRACE_SUFFIXES) or _RANK_DUMP.search(name) is not None)


def _order_name(name: str) -> list[tuple[int, str]]:
    """Order worker2 before worker10: files that name no rank are ranks in this order."""
    return [(int(piece), "") if piece.isdecimal() else (-1, piece) for piece in re.split(r"(\d{1,18})", name)]


def _write_run(files: Sequence[Path], scratch: Path, name: str, options: ReadOptions) -> None:
    started = time.time_ns()
    placing = Placing(len(files))
    for index, path in enumerate(files):
        on_progress = _share(options.on_progress, index, len(files))
        with explain_failure(path, lambda: "after its events had been read"):
            trace = read_trace(path, replace(options, on_progress=on_progress))
            for one in (trace, *trace.beside):
                _write_rank(scratch, placing.add(path, one.facts).rank, one, (path, options.limits), started)
    ranks = list(placing.ranks.values())
    epoch_ns = _align(scratch, ranks)
    facts = ranks[0].facts
    manifest = RunManifest(
        id=name,
        name=name,
        created_unix_ns=epoch_ns if all(rank.facts.absolute for rank in ranks) else started,
        epoch_unix_ns=epoch_ns,
        source="kineto",
        world_size=max(len(ranks), facts.world_size or 1),
        host="",
        stepscope=__version__,
        cuda=facts.versions.get("cuda_runtime_version"),
        metadata={
            "files": [path.name for path in files[:_MOST_LISTED]],
            "file_bytes": [path.stat().st_size for path in files[:_MOST_LISTED]],
            "versions": facts.versions,
        },
    )
    layout.run_file(scratch).write_text(encode_manifest(manifest), encoding="utf-8")


def _write_rank(scratch: Path, rank: int, trace: TraceTables, source: tuple[Path, ReadLimits], started: int) -> None:
    path, limits = source
    folder = layout.rank_path(scratch, rank)
    folder.mkdir(parents=True)
    for table in trace.tables:
        batches = _limit(trace.tables.stream(table), path, limits)
        parts.write_batches(batches, table, layout.table_file(folder, table))
    missing = [name for name in _NOT_IN_TRACES if name not in trace.tables]
    reason = f"An imported trace has none of it; record the run with Stepscope's Profiler ({path.name} was imported)."
    manifest = RankManifest(
        rank=rank,
        host="",
        pid=0,
        state="imported",
        started_unix_ns=trace.facts.epoch_unix_ns,
        heartbeat_unix_ns=started,
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
    if trace.recorded is not None:
        manifest = _take_over(trace.recorded, manifest)
    layout.rank_file(scratch, rank).write_text(encode_manifest(manifest), encoding="utf-8")


def _limit(batches: Iterator[pa.RecordBatch], path: Path, limits: ReadLimits) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        limits.check(path)
        yield batch


def _take_over(recorded: RankManifest, manifest: RankManifest) -> RankManifest:
    """Return what was noted when the rank was recorded; who recorded it, and its files, are no longer there."""
    return replace(
        recorded,
        rank=manifest.rank,
        host="",
        pid=0,
        pid_started=None,
        state=manifest.state,
        started_unix_ns=manifest.started_unix_ns,
        heartbeat_unix_ns=manifest.heartbeat_unix_ns,
        ended_unix_ns=manifest.ended_unix_ns,
        windows=tuple(replace(window, trace_file=None) for window in recorded.windows),
    )


def _align(scratch: Path, ranks: Sequence[Placed]) -> int:
    """Move the ranks' times to one epoch, the earliest; return it. Ranks without a wall clock each start at 0."""
    epoch_ns = min(rank.facts.epoch_unix_ns for rank in ranks)
    if not all(rank.facts.absolute for rank in ranks):
        return epoch_ns
    for rank in ranks:
        shift_ns = rank.facts.epoch_unix_ns - epoch_ns
        if shift_ns:
            _shift(layout.rank_path(scratch, rank.rank), shift_ns)
    return epoch_ns


def _shift(folder: Path, shift_ns: int) -> None:
    for table in _SHIFTED:
        if not parts.find_files(folder, table):
            continue
        data = parts.read_table(folder, table)
        index = data.schema.get_field_index("start_ns")
        moved = pc.add(data["start_ns"], pa.scalar(shift_ns, pa.int64()))
        parts.write_table(data.set_column(index, data.schema.field(index), moved), layout.table_file(folder, table))
    _shift_windows(folder / layout.RANK_FILE, shift_ns)


def _shift_windows(file: Path, shift_ns: int) -> None:
    manifest = decode_manifest(RankManifest, file.read_text(encoding="utf-8"), str(file))
    windows = (
        replace(window, start_ns=window.start_ns + shift_ns, end_ns=window.end_ns + shift_ns)
        for window in manifest.windows
    )
    file.write_text(encode_manifest(replace(manifest, windows=tuple(windows))), encoding="utf-8")


def _move(scratch: Path, target: Path) -> None:
    """Put the finished run in its place. A target that is there may hold other files, which stay."""
    sync_tree(scratch)
    if not target.exists():
        scratch.chmod(0o755)
        os.rename(scratch, target)
    else:
        os.rename(layout.profiler_path(scratch), layout.profiler_path(target))
    sync_parents(layout.profiler_path(target))


def _share(on_progress: Progress | None, index: int, count: int) -> Progress | None:
    if on_progress is None:
        return None
    return lambda share: on_progress((index + share) / count)
