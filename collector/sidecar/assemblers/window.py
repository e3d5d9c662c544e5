"""Make tables of detailed windows, from the Kineto traces that the window signal leaves in `events/`.

The tables are operators, kernels, slices, tracks, counters, memory and collectives. Steps and phases come from the
run's own log, which uses the same clock; the timeline draws them beside the window's slices.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from collector.format.schema.errors import StepscopeError
from collector.format.schema.layout import events_path
from collector.format.schema.manifest import Signal, Warn, Window
from collector.ring.clock import Clock
from collector.ring.windows import WindowNote, find_windows, read_window, trace_file
from collector.sidecar.assembler import Assembler

TABLES = ("operators", "kernels", "slices", "tracks", "counters", "memory", "collectives")
REVISED = ("operators", "kernels", "slices", "memory")
_REFERENCES = ("id", "parent", "launched_by")
AUTOGROUP = Path("/proc/self/autogroup")
_LIGHT, _USUAL = "7", "0"
"""Nice values of the session: a fifth of the usual weight, and the usual one. With less than a fifth, the sampler of
stacks would stop for seconds."""
_APART_S = 0.11
"""Time in seconds between two tries to set the value: the system takes a new value ten times a second at most."""
_log = logging.getLogger("stepscope")


@contextmanager
def _weighing_less() -> Iterator[None]:
    """Give the sidecar's session a lower scheduling weight while it reads a window.

    Linux gives each session the same share of the processors: autogroup in sched(7). With the usual weight, reading
    would count as much as all threads of the training together; a step beside it took 100 ms longer. The sampler runs
    in the same session, so the weight is lower only during the block.
    """
    with suppress(OSError):
        AUTOGROUP.write_text(_LIGHT, "ascii")
    try:
        yield
    finally:
        for wait_s in (0.0, _APART_S, _APART_S):
            time.sleep(wait_s)
            with suppress(OSError):
                AUTOGROUP.write_text(_USUAL, "ascii")
                break


class WindowAssembler(Assembler):
    kept = ("failed", "tracks", "slices", "counts", "lost", "by_calls")

    def __init__(self, rank_folder: Path, clock: Clock) -> None:
        super().__init__(rank_folder, clock)
        self._events = events_path(rank_folder)
        self._taken: set[str] = set()
        self._windows: list[Window] = []
        self._warnings: list[Warn] = []
        self._failed = ""
        self._tracks: dict[str, int] = {}
        self._slices = 0
        self._counts: dict[str, int] = {}
        self._lost = 0
        self._is_beside_training = False
        self._by_calls: list[int] = []
        self._has_trained: Callable[[], bool] = bool

    @property
    def revises(self) -> tuple[str, ...]:  # type: ignore[override]
        return REVISED if self._by_calls and self._has_trained() else ()

    def listen(self, others: Mapping[str, Assembler]) -> None:
        steps: Any = others.get("steps")
        self._has_trained = getattr(steps, "has_trained", self._has_trained)

    def revise(self, table: str, rows: pa.Table) -> pa.Table:
        """Return the rows without those of calls from before a training: their numbers are those of calls."""
        if table not in self.revises:
            return rows
        if "step" in rows.column_names:
            steps = pa.array(self._list_steps(), rows["step"].type)
            return rows.filter(pc.invert(pc.fill_null(pc.is_in(rows["step"], steps), False)))
        return rows

    def _list_steps(self) -> list[int]:
        found = (window for window in self._windows if window.first_step in self._by_calls)
        return [step for window in found for step in range(window.first_step, window.last_step + 1)]

    def follow(self, trainer: int) -> None:
        self._is_beside_training = True
        # Importing takes longer than reading a small window. Now the training still imports and loads.
        import collector.traces.kineto.reader
        import collector.traces.reading  # noqa: F401

    def finish(self) -> dict[str, pa.Table]:
        self._is_beside_training = False
        return self.poll()

    def poll(self) -> dict[str, pa.Table]:
        found: dict[str, list[pa.Table]] = {}
        for path in find_windows(self._events):
            if path.name in self._taken:
                continue
            self._taken.add(path.name)
            known, begun = len(self._windows), self.clock.now()
            with _weighing_less() if self._is_beside_training else nullcontext():
                tables = self._read(path)
            if self._is_beside_training and len(self._windows) > known:
                self._windows[-1] = replace(self._windows[-1], read_start_ns=begun, read_end_ns=self.clock.now())
            for name, rows in tables.items():
                found.setdefault(name, []).append(rows)
        return {name: pa.concat_tables(pieces).unify_dictionaries() for name, pieces in found.items()}

    def describe(self) -> dict[str, Any]:
        dropped = self._by_calls if self._has_trained() else []
        fields: dict[str, Any] = {
            "windows": [window for window in self._windows if window.first_step not in dropped],
            "warnings": self._warnings,
            "events_lost": self._lost,
            "facts": {"events": self._counts} if self._windows else {},
        }
        if self._failed:
            fields["signals"] = [Signal("window", "failed", self._failed)]
        return fields

    def checkpoint(self) -> dict[str, Any]:
        return {
            **super().checkpoint(),
            "taken": sorted(self._taken),
            "windows": [asdict(window) for window in self._windows],
            "warnings": [asdict(entry) for entry in self._warnings],
        }

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        self._taken = set(state["taken"])
        self._windows = [Window(**entry) for entry in state["windows"]]
        self._warnings = [Warn(**entry) for entry in state["warnings"]]

    def _read(self, path: Path) -> dict[str, pa.Table]:
        # Imported when there is a window: a run without one never pays for the reader.
        from collector.traces.format import ReadOptions
        from collector.traces.reading import read_trace

        try:
            note = read_window(path)
            trace = trace_file(self._events, note.first_step)
            read = read_trace(trace, ReadOptions(self.clock.epoch_unix_ns, _bound_steps(note)))
        except (OSError, ValueError, StepscopeError) as error:
            _log.warning("stepscope: the detailed window %s cannot be read: %s", path.name, error)
            self._failed = f"The trace of the detailed window cannot be read: {error}"
            return {}
        self._windows.append(self._describe_window(note, trace.name))
        if note.by_calls:
            self._by_calls.append(note.first_step)
        self._warnings += [entry for entry in read.warnings if entry.code.startswith("trace_")]
        for fate, count in read.facts.facts["events"].items():
            self._counts[fate] = self._counts.get(fate, 0) + count
        self._lost += read.events_lost
        return self._renumber({name: read.tables[name] for name in TABLES})

    def _describe_window(self, note: WindowNote, file: str) -> Window:
        return Window(
            first_step=note.first_step,
            last_step=note.first_step + max(len(note.ends_unix_ns) - 1, 0),
            start_ns=self.clock.unix_to_run(note.start_unix_ns),
            end_ns=self.clock.unix_to_run(note.end_unix_ns),
            stall_ns=note.stall_ns,
            trigger=note.trigger,
            trace_file=f"events/{file}",
        )

    def _renumber(self, tables: dict[str, pa.Table]) -> dict[str, pa.Table]:
        """Make track numbers and slice ids unique over all windows; a thread keeps its track."""
        tracks = tables["tracks"]
        keys = [
            "\0".join(map(str, row))
            for row in zip(*(tracks[name].to_pylist() for name in ("kind", "name", "process", "stream")), strict=True)
        ]
        fresh = [index for index, key in enumerate(keys) if key not in self._tracks]
        numbers = np.array([self._tracks.setdefault(key, len(self._tracks)) for key in keys], np.int32)
        places = pa.array(numbers, pa.int32())
        tables["tracks"] = _replace(_replace(tracks, "track", places), "order", places).take(
            pa.array(fresh, pa.int64())
        )
        for name in ("slices", "counters"):
            if tables[name].num_rows:
                tables[name] = _replace(tables[name], "track", places.take(tables[name]["track"].combine_chunks()))
        slices = tables["slices"]
        for name in _REFERENCES:
            slices = _replace(slices, name, pc.add(slices[name], self._slices))
        self._slices += slices.num_rows
        tables["slices"] = slices
        return tables


def _bound_steps(note: WindowNote) -> Any:
    from collector.traces.format import StepBounds

    ends = note.ends_unix_ns
    if not ends:
        return StepBounds((note.first_step,), (note.start_unix_ns,), (note.end_unix_ns,))
    starts = (note.start_unix_ns, *ends[:-1])
    return StepBounds(tuple(range(note.first_step, note.first_step + len(ends))), starts, ends)


def _replace(table: pa.Table, name: str, values: Any) -> pa.Table:
    index = table.schema.get_field_index(name)
    return table.set_column(index, table.schema.field(index), values)


ASSEMBLER = WindowAssembler
