"""Record one rank: run the assemblers, write their rows to files, keep rank.json up to date.

The same recorder runs in the sidecar, in analyse() when the sidecar is gone, and in recover. A lock allows only one at
a time. When the disk is slow or full, the recorder goes on with bounded memory.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import re
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from collector.edge import log_failure
from collector.format import parts
from collector.format.schema.errors import StepscopeError
from collector.format.schema.inside import is_plain_folder
from collector.format.schema.layout import EVENTS_FOLDER, RANK_FILE, RUN_FILE, events_path, table_parts_folder
from collector.format.schema.manifest import Warn, encode_manifest
from collector.format.schema.reading import read_small_text
from collector.format.schema.removal import Marked, remove_file, remove_tree, tolerated
from collector.format.schema.tables import TABLES
from collector.format.schema.wording import format_number_of
from collector.format.schema.writing import replace_text, sync_file, sync_folder, sync_parents
from collector.notes import NOTES_FILE, SAVED_FILE, WORDS_FILE, Notes, read_notes, save_copy
from collector.ring.words import is_finished
from collector.sidecar.assembler import Assembly, lack_memory
from collector.sidecar.coverage_warnings import spell_problem
from collector.sidecar.rank_manifest import build_manifest, find_mean_step, read_signals

FLUSH_S = 3.0
"""Seconds between two writes of new rows to the disk. Each write waits for the disk."""
MOST_FLUSH_S = 30.0
_FLUSHES_APART = 20.0
"""Factor for slow disks: the next write waits this many times the last write's duration, up to MOST_FLUSH_S."""
MOST_PENDING_ROWS = 400_000
"""Most rows of all tables together that are held while the disk is full; the oldest rows are dropped first."""
CHECKPOINT_FILE = "checkpoint.json"
_EVENTS = Marked(re.compile(EVENTS_FOLDER), (NOTES_FILE, SAVED_FILE))
_log = logging.getLogger("stepscope")


class Recorder:
    """Makes tables from the logs in `events/` of one rank. Call `poll` often, `finish` once."""

    def __init__(self, rank_folder: Path, log: Path | None = None, trainer: int = 0) -> None:
        """Continue at the point where the last recorder stopped. Raise OSError or ValueError if the notes cannot be
        read.

        `log` is the event log in shared memory, None if the log is a file of the run. `trainer` is the id of the
        training process that started this process, else 0. The memory of that process may be read.
        """
        self.rank_folder = rank_folder
        self.notes = read_notes(rank_folder)
        self.problem: OSError | None = None
        self.process_end: dict[str, Any] = {}
        """Facts on how the training process ended; empty while it runs, or if its end was not seen."""
        self._log = log
        self._pending: dict[str, list[pa.Table]] = {}
        self._dropped = 0
        self._next_part: dict[str, int] = {}
        self._merged: dict[str, int] = {}
        self._started = time.monotonic()
        self._flushed = self._started
        self._flush_s = FLUSH_S
        self._is_anchored = False
        self._saved_notes: Notes | None = None
        self._recorded_until_ns: int | None = None
        self._mean_step_ns: float | None = None
        self._cpu_at_start = time.process_time()
        self._assembly = Assembly(rank_folder, self.notes.clock, log, trainer)
        self._take_over()

    @property
    def is_finished(self) -> bool:
        with contextlib.suppress(OSError):
            return bool(self.notes.finished) or is_finished(self._log or events_path(self.rank_folder) / WORDS_FILE)
        return False

    def poll(self) -> None:
        """Collect new rows. Write all rows that are kept in memory, if the last write is long enough ago."""
        made = self._assembly.poll()
        self._hold(made)
        self._assembly.watch(made)
        if time.monotonic() - self._flushed >= self._flush_s:
            self.flush()

    def finish(self, state: str) -> None:
        """Collect the last rows, write them, merge the files of each table, and write to rank.json that the rank ended
        in `state`.

        The last checkpoint and the event logs after it stay until the very end, so that a process that takes over can
        repeat the rest. If the disk fails, the rank stays unfinished.
        """
        self._hold(self._assembly.finish())
        self.problem = None
        if not (self._write_pending() or self._write_pending()):  # once more: it may have been for a moment
            self._write_manifest("recording")
            return
        for table in TABLES:
            self._join(table)
        with log_failure("the mean step is not known"):
            self._mean_step_ns = find_mean_step(self.rank_folder)
        self.problem = None
        if not self._settle():
            self._write_manifest("recording")
            return
        if self._keeps_events():
            self._save_checkpoint()
        self._write_manifest(state, ended_unix_ns=time.time_ns())
        if self.problem is None and not self._keeps_events():
            with tolerated():
                remove_tree(events_path(self.rank_folder), _EVENTS)

    def _settle(self) -> bool:
        """Remove the parts of merged tables, and sync those of others. Return False if the disk fails."""
        try:
            parts.remove_parts(self.rank_folder, TABLES)
        except OSError as error:
            self._note("the tables", error)
        self._anchor()
        return self.problem is None

    def _keeps_events(self) -> bool:
        """Return whether `events/` is kept: at the user's request, or because an assembler or a signal failed."""
        if self.notes.options.get("keep_events") or self._assembly.failed:
            return True
        return any(signal.state == "failed" for signal in read_signals(self._describe()))

    def flush(self) -> None:
        """Write pending rows, then the checkpoint, then rank.json, all to the disk. `problem` is set if that fails."""
        begun = time.monotonic()
        self.problem = None
        self._anchor()
        self._sync_log()
        if self._write_pending(durable=True) and self._save_notes() and self._save_checkpoint():
            self._assembly.release()
            self._merge()
        self._write_manifest("recording")
        self._flushed = time.monotonic()
        self._flush_s = min(max(FLUSH_S, _FLUSHES_APART * (self._flushed - begun)), MOST_FLUSH_S)

    def _anchor(self) -> None:
        """Sync run.json and the folders to the disk. The training process made these without waiting for the disk."""
        if self._is_anchored:
            return
        self._is_anchored = True
        profiler = self.rank_folder.parent
        with log_failure("what is recorded may not outlive a loss of power", level=logging.DEBUG):
            sync_file(profiler / RUN_FILE)
            sync_folder(self.rank_folder)
            sync_parents(self.rank_folder)

    def _sync_log(self) -> None:
        """Sync the file of the log, which holds the words that are in no row yet."""
        with log_failure("the event log may not outlive a loss of power", level=logging.DEBUG):
            sync_file(events_path(self.rank_folder) / WORDS_FILE)

    def _save_notes(self) -> bool:
        """Save a copy of the notes to the disk. The training never waits for this. Return False if saving fails."""
        notes = self.read_notes()
        if notes == self._saved_notes:
            return True
        try:
            save_copy(notes, self.rank_folder)
        except OSError as error:
            self._note("the notes", error)
            return False
        self._saved_notes = dataclasses.replace(notes)
        return True

    def read_notes(self) -> Notes:
        """Read the training process's notes again and return them. If that fails, return the notes read before."""
        try:
            self.notes = read_notes(self.rank_folder)
        except (OSError, ValueError) as error:
            _log.debug("stepscope: %s", error)
        return self.notes

    def _hold(self, made: Iterable[tuple[str, pa.Table]]) -> None:
        for table, rows in made:
            self._pending.setdefault(table, []).append(rows)
            if table == "steps":
                self._recorded_until_ns = rows["start_ns"][-1].as_py() + rows["duration_ns"][-1].as_py()
        self._bound_pending()

    def _bound_pending(self) -> None:
        total = sum(rows.num_rows for tables in self._pending.values() for rows in tables)
        while total > MOST_PENDING_ROWS:
            tables = max(self._pending.values(), key=lambda pieces: sum(piece.num_rows for piece in pieces))
            gone = tables.pop(0).num_rows
            total -= gone
            self._dropped += gone

    def _write_pending(self, durable: bool = False) -> bool:
        for table in list(self._pending):
            pieces = self._pending[table]
            if not pieces:
                continue
            number = self._next_part.get(table, 0)
            try:
                rows = pa.concat_tables(pieces).unify_dictionaries()
                parts.write_part(rows, self.rank_folder, table, number, durable)
            except (OSError, MemoryError) as error:
                self._note(f"the table {table}", error)
                return False
            self._next_part[table] = number + 1
            del self._pending[table]
        return True

    def _save_checkpoint(self) -> bool:
        saved = {"parts": self._next_part, "dropped": self._dropped, "until_ns": self._recorded_until_ns}
        text = json.dumps({**saved, "states": self._assembly.checkpoint()})
        return self._try_replace(events_path(self.rank_folder) / CHECKPOINT_FILE, text)

    def _merge(self) -> None:
        for table, number in self._next_part.items():
            if number % parts.PARTS_PER_MERGE or self._merged.get(table) == number:
                continue
            self._merged[table] = number
            try:
                parts.merge_parts(self.rank_folder, table)
            except (OSError, MemoryError, StepscopeError) as error:
                _log.warning("stepscope: the parts of %s stay as they are: %s", table, error)

    def _take_over(self) -> None:
        """Continue after the last checkpoint. Table files after it are removed, and their rows are made again."""
        try:
            saved = json.loads(read_small_text(events_path(self.rank_folder) / CHECKPOINT_FILE))
        except (OSError, ValueError):
            saved = {"parts": {}, "dropped": 0, "states": {}}
        self._next_part, self._dropped = dict(saved["parts"]), saved["dropped"]
        self._recorded_until_ns = saved.get("until_ns")
        for table in TABLES:
            folder = table_parts_folder(self.rank_folder, table)
            for path in folder.glob("*.parquet") if is_plain_folder(folder) else ():
                is_single = parts.PART_NAME.fullmatch(path.name) and path.stem.isdigit()
                if is_single and int(path.stem) >= self._next_part.get(table, 0):
                    remove_file(path)
        self._assembly.restore(saved["states"])

    def _join(self, table: str) -> None:
        with log_failure("the parts of %s stay as they are", table):  # they are read just as well
            revise = partial(self._assembly.revise, table) if self._assembly.may_revise(table) else None
            parts.join_parts(self.rank_folder, table, revise)

    def _write_manifest(self, state: str, ended_unix_ns: int | None = None) -> None:
        manifest = build_manifest(self.read_notes(), self._describe(), self._assembly.failed, self._cpu_frac())
        manifest = dataclasses.replace(
            manifest,
            state=state,  # type: ignore[arg-type]
            ended_unix_ns=ended_unix_ns,
            flush_s=self._flush_s,
            recorded_until_ns=self._recorded_until_ns,
        )
        if ended_unix_ns is not None and not self._keeps_events():
            windows = tuple(dataclasses.replace(window, trace_file=None) for window in manifest.windows)
            manifest = dataclasses.replace(manifest, windows=windows)
        self._try_replace(self.rank_folder / RANK_FILE, encode_manifest(manifest))

    def _try_replace(self, path: Path, text: str) -> bool:
        try:
            replace_text(path, text, durable=True)
            return True
        except (OSError, MemoryError) as error:
            self._note(path.name, error)
            return False

    def _note(self, what: str, error: OSError | MemoryError) -> None:
        self.problem = error if isinstance(error, OSError) else lack_memory()
        _log.warning("stepscope: %s is not written: %s", what, self.problem)

    def _describe(self) -> dict[str, Any]:
        fields: dict[str, Any] = {"mean_step_ns": self._mean_step_ns, **self._assembly.describe()}
        fields.setdefault("warnings", [])
        fields["facts"] = {**fields.get("facts", {}), **self.process_end}
        if self._dropped:
            text = f"Dropped: {format_number_of(self._dropped, 'row')} that could not be written (is the disk full?)."
            fields["warnings"].append(Warn("rows_dropped", text))
        if self.problem is not None:
            fields["warnings"].append(Warn("not_written", spell_problem(self.problem, self.rank_folder)))
        return fields

    def _cpu_frac(self) -> float | None:
        elapsed = time.monotonic() - self._started
        return (time.process_time() - self._cpu_at_start) / elapsed if elapsed > 1.0 else None
