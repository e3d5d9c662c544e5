"""Set aside the damaged files of a run, and make them again from the files that are left.

The sources are `events/` for the tables of detailed windows and rank.json, the rows of `phases` for `steps`, and the
notes of the ranks for run.json. A file without a source is lost, and the result lists the loss.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from collector.format import parts
from collector.format.phases import PHASE_NAMES
from collector.format.schema.errors import NewerSchemaError, RunError, TableBrokenError
from collector.format.schema.inside import refuse_links
from collector.format.schema.layout import (
    BROKEN_SUFFIX,
    RANK_FILE,
    events_path,
    find_ranks,
    rank_path,
    run_file,
    table_file,
)
from collector.format.schema.manifest import (
    RankManifest,
    RunManifest,
    RunState,
    Warn,
    Window,
    decode_manifest,
    encode_manifest,
)
from collector.format.schema.reading import read_small_text
from collector.format.schema.removal import remove_file, replace
from collector.format.schema.tables import TABLES
from collector.format.schema.wording import format_number_of
from collector.format.schema.writing import replace_text
from collector.format.stored_files import check_ranges, open_file
from collector.notes import Notes, read_notes
from collector.sidecar.assemblers import window
from collector.sidecar.process import hold_lock, read_manifest, recover_rank
from collector.sidecar.recorder import CHECKPOINT_FILE, Recorder

LOCK_S = 1.0


def repair_manifest(run_path: Path) -> str:
    """Make run.json again if it is damaged or gone. Return what was done, "" if run.json is whole.

    Raise LinkedRunError if a link lies inside the run, TableBrokenError if the run has no rank, NewerSchemaError for a
    run of a newer version.
    """
    refuse_links(run_path)
    path = run_file(run_path)
    try:
        decode_manifest(RunManifest, read_small_text(path), str(path))
        return ""
    except (OSError, UnicodeDecodeError, TableBrokenError):
        pass
    ranks = find_ranks(run_path) if path.parent.is_dir() else ()
    if not ranks:
        raise TableBrokenError(f"{path} is damaged and there is no rank folder beside it: nothing is left to recover")
    notes = _read_first_notes(run_path, ranks)
    started = notes.epoch_unix_ns if notes else path.parent.stat().st_mtime_ns
    manifest = RunManifest(
        id=run_path.name,
        name=run_path.name,
        created_unix_ns=started,
        epoch_unix_ns=started,
        source="collector" if notes else "kineto",
        world_size=len(ranks),
        host=notes.host if notes else "",
        options=notes.options if notes else {},
    )
    if path.exists():
        _set_aside(path)
    replace_text(path, encode_manifest(manifest), durable=True)
    return f"{path.name} was damaged and is made again; the names of the script and its versions are lost"


def mend_rank(rank_folder: Path) -> tuple[list[str], str]:
    """Repair one rank and make its tables. Return a sentence per repair, and a word as `recover_rank` does."""
    mended = repair_rank(rank_folder)
    return list(mended), recover_rank(rank_folder)


def repair_rank(rank_folder: Path) -> tuple[str, ...]:
    """Repair the tables and rank.json of a rank. Return a sentence per repair, nothing while the rank records."""
    if not events_path(rank_folder).is_dir():  # an imported run: nobody records it
        return _repair_rank(rank_folder)
    with hold_lock(rank_folder, LOCK_S) as mine:
        return _repair_rank(rank_folder) if mine else ()


def _repair_rank(rank_folder: Path) -> tuple[str, ...]:
    found = {
        table: [file for file in parts.find_files(rank_folder, table) if _is_broken(file, table)] for table in TABLES
    }
    broken = {table: files for table, files in found.items() if files}
    # First of all: a recorder that makes rank.json again goes through the parts, too.
    for files in broken.values():
        for file in files:
            _set_aside(file, rank_folder)
    said = [] if read_manifest(rank_folder) else _repair_rank_manifest(rank_folder)
    if broken.keys() & set(window.TABLES):
        _rebuild_windows(rank_folder)
    for table in broken:
        said.append(f"{table} was damaged, the file is set aside; {_restore(rank_folder, table)}")
    _remember(
        rank_folder,
        [Warn(f"repaired_{table}", text) for table, text in zip(broken, said[len(said) - len(broken) :], strict=True)],
    )
    return tuple(said)


def _restore(rank_folder: Path, table: str) -> str:
    if table == "steps" and not parts.find_files(rank_folder, table):
        manifest = read_manifest(rank_folder)
        rows = rebuild_steps(rank_folder, manifest.windows if manifest else ())
        if rows is not None:
            parts.write_table(rows, table_file(rank_folder, table), durable=True)
            count = sum(kind == "train" for kind in rows["kind"].to_pylist())
            return f"{format_number_of(count, 'step')} made again from the phases, counts of calls and samples are lost"
    left = sum(parts.count_rows(file) for file in parts.find_files(rank_folder, table))
    return f"{format_number_of(left, 'row')} restored or kept" if left else "nothing is left to make it again from"


def _is_broken(file: Path, table: str) -> bool:
    """Read a file to its end, a batch at a time, and return whether it is damaged. A file of a newer version is not."""
    try:
        parts.read_files([file], table, where=ds.scalar(False))
        with open_file(file, table) as source:
            for batch in source.iter_batches():
                check_ranges(batch, file)
    except NewerSchemaError:
        return False
    except (TableBrokenError, pa.ArrowException, OSError, ValueError):
        return True
    return False


def _rebuild_windows(rank_folder: Path) -> None:
    """Read the traces of the detailed windows again if they still exist. In rank.json only `windows` changes."""
    if not any(events_path(rank_folder).glob("window-*.note.json")):
        return
    before = read_manifest(rank_folder)
    for table in window.TABLES:
        for file in parts.find_files(rank_folder, table):
            remove_file(file)
    path = events_path(rank_folder) / CHECKPOINT_FILE
    try:
        saved = json.loads(read_small_text(path))
        saved["states"].pop("window", None)
        saved["parts"] = {table: n for table, n in saved["parts"].items() if table not in window.TABLES}
        replace_text(path, json.dumps(saved))
        Recorder(rank_folder).finish(before.state if before else "crashed")
    except (OSError, ValueError, KeyError, AttributeError):
        return
    after = read_manifest(rank_folder)
    if before and after:
        replace_text(rank_folder / RANK_FILE, encode_manifest(dataclasses.replace(before, windows=after.windows)), True)


def _repair_rank_manifest(rank_folder: Path) -> list[str]:
    """Make rank.json again from the notes; without notes, with the fewest fields. Return a sentence on the result."""
    path = rank_folder / RANK_FILE
    if path.exists():
        _set_aside(path)
    try:
        notes = read_notes(rank_folder)
        Recorder(rank_folder).finish(notes.finished or "crashed")
        return [f"{path.name} was damaged and is made again from events/"]
    except (OSError, ValueError):
        number = int(rank_folder.name.partition("_")[2])
        now = rank_folder.stat().st_mtime_ns
        manifest = RankManifest(number, "", 0, _find_state(rank_folder), now, now, ended_unix_ns=now)
        replace_text(path, encode_manifest(manifest), durable=True)
        return [f"{path.name} was damaged; only the tables are left, its devices, loaders and settings are lost"]


def _find_state(rank_folder: Path) -> RunState:
    """Return the state of a rank without rank.json.

    The state is crashed if `events/` is left, because the recorder has then not finished the tables.
    """
    if events_path(rank_folder).is_dir():
        return "crashed"
    path = run_file(rank_folder.parent.parent)
    try:
        run = decode_manifest(RunManifest, read_small_text(path), str(path))
    except (OSError, UnicodeDecodeError, TableBrokenError):
        return "crashed"
    return "imported" if run.is_imported else "complete"


def _remember(rank_folder: Path, warnings: list[Warn]) -> None:
    manifest = read_manifest(rank_folder)
    if manifest is not None and warnings:
        kept = {warn.code: warn for warn in (*manifest.warnings, *warnings)}
        repaired = dataclasses.replace(manifest, warnings=tuple(kept.values()))
        replace_text(rank_folder / RANK_FILE, encode_manifest(repaired), durable=True)


def _read_first_notes(run_path: Path, ranks: tuple[int, ...]) -> Notes | None:
    for rank in ranks:
        with contextlib.suppress(OSError, ValueError):
            return read_notes(rank_path(run_path, rank))
    return None


def _set_aside(file: Path, rank_folder: Path | None = None) -> None:
    """Rename a damaged file. A file in a table's folder is moved to the rank's folder, where no merge removes it."""
    is_part = rank_folder is not None and file.parent != rank_folder
    target = file.parent.parent / f"{file.parent.name}.{file.name}" if is_part else file
    replace(file, target.with_name(target.name + BROKEN_SUFFIX))


def rebuild_steps(rank_folder: Path, windows: Sequence[Window]) -> pa.Table | None:
    """Return rows of `steps`, without samples, made from the rows of `phases`; None if `phases` has no rows.

    A row with a higher step number than every row before is a training step.
    """
    try:
        stretches = parts.read_table(rank_folder, "phases").to_pandas()
    except RunError:
        return None
    if not len(stretches):
        return None
    fetches = _read_fetches(rank_folder)
    rows: list[dict[str, Any]] = []
    last = 0
    for key, group in stretches.groupby("index", sort=True):
        index, step = int(str(key)), int(group["step"].iloc[0])
        detailed = any(window.first_step <= step <= window.last_step for window in windows)
        row = _rebuild_row(group, fetches.get(index, {}), is_train=step > last)
        rows.append({"index": index, "step": step, "detailed": detailed, **row})
        last = max(last, step)
    return parts.build_table_from_rows("steps", rows)


def _rebuild_row(group: Any, fetch: dict[str, int], *, is_train: bool) -> dict[str, Any]:
    sums = group.groupby("phase", observed=True)["duration_ns"].sum()
    return {
        "kind": "train" if is_train else _name_kind(sums, int(group["step"].iloc[0])),
        "start_ns": int(group["start_ns"].min()),
        "duration_ns": int(group["duration_ns"].sum()),
        **{f"{name}_ns": int(sums.get(name, 0)) for name in PHASE_NAMES},
        **fetch,
        "fetches": int(bool(fetch)),
        "forwards": int(sums.get("forward", 0) > 0),
        "backwards": int(sums.get("backward", 0) > 0),
        "optimizer_steps": int(is_train),
        "skipped_updates": 0,
        "loader_start_ns": 0,
        "gc_ns": 0,
        "markers": False,
    }


def _name_kind(sums: Any, step: int) -> str:
    if sums.get("forward", 0) > 0:
        return "eval"
    return "rest" if step else "startup"


def _read_fetches(rank_folder: Path) -> dict[int, dict[str, int]]:
    try:
        fetches = parts.read_table(rank_folder, "fetches", ("index", "loader", "epoch", "batch", "samples")).to_pandas()
    except RunError:
        return {}
    found: dict[int, dict[str, int]] = {}
    for row in fetches.dropna().astype("int64").to_dict("records"):
        found.setdefault(row.pop("index"), {str(name): int(value) for name, value in row.items()})
    return found
