"""What a plug-in of `collector.sidecar.assemblers` is, and how those of one rank work together: one that raises takes no
other's table away."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from collector.edge import Edge
from collector.plugins import find_plugins
from collector.ring.clock import Clock
from collector.sidecar import assemblers as room


class Assembler:
    """Base of the plug-ins; a module declares `ASSEMBLER = <class>`. Must not import torch.

    Rows that were returned are written before `checkpoint()` is saved and `release()` is called. A new process that
    takes over gets the saved checkpoint through `restore()` and must return the rows that come after it, no others.
    """

    revises: tuple[str, ...] = ()
    """Tables whose rows `revise` may change at the end; the others are made one file without being held whole."""
    kept: tuple[str, ...] = ()
    """Values of plain JSON that are all of the checkpoint, or a part: the names of attributes, without their underscore."""

    def __init__(self, rank_folder: Path, clock: Clock) -> None:
        self.rank_folder = rank_folder
        self.clock = clock

    def attach(self, log: Path) -> None:
        """Use this for the event log of the training thread: it is in memory, and its file is a copy."""

    def follow(self, trainer: int) -> None:
        """Get to know the process that trains, which has started this one, by its number."""

    def listen(self, others: Mapping[str, Assembler]) -> None:
        """Get to know the other assemblers by name, once, before anything is read."""

    def poll(self) -> dict[str, pa.Table]:
        """Return the new rows of each table since the last call."""
        return {}

    def finish(self) -> dict[str, pa.Table]:
        """Return the rest: nothing more will be recorded."""
        return self.poll()

    def describe(self) -> dict[str, Any]:
        """Return fields of rank.json: lists are joined with those of other assemblers, mappings are merged."""
        return {}

    def watch(self, table: str, rows: pa.Table) -> None:
        """See rows that some assembler has just returned while the run records, to act on them."""

    def derive(self, table: str, rows: pa.Table) -> dict[str, pa.Table]:
        """Return rows that follow from those that some assembler has just returned; they are written with them."""
        return {}

    def revise(self, table: str, rows: pa.Table) -> pa.Table:
        """Return the rows of a table as they are to stay, before its parts become one file."""
        return rows

    def checkpoint(self) -> dict[str, Any]:
        """Return a small JSON state from which another process can go on after the rows returned so far."""
        return {name: getattr(self, f"_{name}") for name in self.kept}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from what another process's checkpoint() returned."""
        for name in self.kept:
            if name in state:
                setattr(self, f"_{name}", state[name])

    def release(self) -> None:
        """Free what the rows returned so far were made from: they are on disk."""


_log = logging.getLogger("stepscope")


class Assembly:
    """All assemblers that there are. `failed` says of each that was switched off why, by its name."""

    def __init__(self, rank_folder: Path, clock: Clock, log: Path | None, trainer: int) -> None:
        """`log` is the event log in memory, where it is no file of the run; `trainer` as for a Recorder."""
        self.failed: dict[str, str] = {}
        self._assemblers: dict[str, Assembler] = {}
        for kind in find_plugins(room, "ASSEMBLER"):
            name = kind.__module__.rpartition(".")[2]
            with self._shielded(name):
                self._assemblers[name] = kind(rank_folder, clock)
        if log is not None:
            self._tell("attach", log)
        if trainer:
            self._tell("follow", trainer)
        self._tell("listen", self._assemblers)

    def poll(self) -> list[tuple[str, pa.Table]]:
        """Return the new rows of the tables."""
        return self._collect("poll")

    def watch(self, made: Iterable[tuple[str, pa.Table]]) -> None:
        """Show every assembler rows that `poll` returned, to act on them."""
        for table, rows in made:
            self._tell("watch", table, rows)

    def finish(self) -> list[tuple[str, pa.Table]]:
        """Return the rest: nothing more will be recorded."""
        return self._collect("finish")

    def release(self) -> None:
        """Let each free what the rows returned so far were made from: they are on the disk."""
        self._tell("release")

    def checkpoint(self) -> dict[str, dict[str, Any]]:
        """Return by name the states from which another process can go on after the rows returned so far."""
        return {name: self._call(name, "checkpoint") or {} for name in list(self._assemblers)}

    def restore(self, states: Mapping[str, dict[str, Any]]) -> None:
        """Go on from what another process's `checkpoint` returned."""
        for name, state in states.items():
            if name in self._assemblers and state:
                self._call(name, "restore", state)

    def may_revise(self, table: str) -> bool:
        """Say whether an assembler may change rows of a table at the end."""
        return any(table in assembler.revises for assembler in self._assemblers.values())

    def revise(self, table: str, rows: pa.Table) -> pa.Table:
        """Return the rows of a table as they are to stay."""
        for name in list(self._assemblers):
            revised = self._call(name, "revise", table, rows)
            rows = rows if revised is None else revised
        return rows

    def describe(self) -> dict[str, Any]:
        """Join what each says of the rank: lists one after the other, mappings into one, losses summed."""
        fields: dict[str, Any] = {}
        for name in list(self._assemblers):
            for key, value in (self._call(name, "describe") or {}).items():
                if isinstance(value, dict):
                    fields[key] = {**fields.get(key, {}), **value}
                elif isinstance(value, (list, tuple)):
                    fields[key] = [*fields.get(key, []), *value]
                else:
                    fields[key] = fields.get(key, 0) + value if key == "events_lost" else value
        return fields

    def _collect(self, method: str) -> list[tuple[str, pa.Table]]:
        made: list[tuple[str, pa.Table]] = []
        for name in list(self._assemblers):
            made += (self._call(name, method) or {}).items()
        for table, rows in list(made):
            for name in list(self._assemblers):
                made += (self._call(name, "derive", table, rows) or {}).items()
        return [(table, rows) for table, rows in made if rows.num_rows]

    def _tell(self, method: str, *args: Any) -> None:
        for name in list(self._assemblers):
            self._call(name, method, *args)

    def _call(self, name: str, method: str, *args: Any) -> Any:
        """Call a method of an assembler; one that raises is switched off."""
        with self._shielded(name):
            return getattr(self._assemblers[name], method)(*args)
        return None

    def _shielded(self, name: str) -> Edge:
        return Edge(partial(self._fail, name))

    def _fail(self, name: str, error: Exception) -> None:
        if isinstance(error, MemoryError):
            # No fault of the assembler's: another process may have the memory, and go on from the last checkpoint.
            raise lack_memory() from error
        _log.warning("stepscope: the assembler %s failed and is switched off", name, exc_info=error)
        self.failed[name] = f"Making its tables failed: {error!r}. The other tables are not affected."
        self._assemblers.pop(name, None)


def lack_memory() -> OSError:
    """Return the error of a process that the system gives no more memory."""
    return OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
