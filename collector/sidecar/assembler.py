"""The base class of assemblers, and the group of all assemblers of a rank. An assembler makes tables from the event
logs; it is a plug-in in `collector.sidecar.assemblers`.

An assembler that raises is switched off; the other assemblers go on.
"""

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
    """Base class of the plug-ins that make tables. Each module of plug-ins declares `ASSEMBLER = <class>`, and must not
    import torch.

    The rows that an assembler returns are written to the disk, then its `checkpoint()` is saved, then `release()` is
    called. A process that takes over passes the saved checkpoint to `restore()`; from then on the assembler must return
    only the rows after that checkpoint.
    """

    revises: tuple[str, ...] = ()
    """Tables whose rows `revise` may change at the end of the recording. Files of other tables are merged as they
    are."""
    kept: tuple[str, ...] = ()
    """Names, without the leading underscore, of the attributes that `checkpoint` saves and `restore` sets. Their values
    are plain JSON."""

    def __init__(self, rank_folder: Path, clock: Clock) -> None:
        self.rank_folder = rank_folder
        self.clock = clock

    def attach(self, log: Path) -> None:
        """Receive the path of the event log in shared memory. The log file in the run is then only a copy."""

    def follow(self, trainer: int) -> None:
        """Receive the process id of the training process. Called only if that process started this one."""

    def listen(self, others: Mapping[str, Assembler]) -> None:
        """Receive all assemblers of the rank by name, once, before the first `poll`."""

    def poll(self) -> dict[str, pa.Table]:
        """Return the rows made since the last call, by table. A table without new rows may be left out."""
        return {}

    def finish(self) -> dict[str, pa.Table]:
        """Return the remaining rows by table. Called once, after the recording has ended."""
        return self.poll()

    def describe(self) -> dict[str, Any]:
        """Return fields for rank.json by name. Lists and mappings of several assemblers are joined."""
        return {}

    def watch(self, table: str, rows: pa.Table) -> None:
        """Receive rows of `table` that any assembler's `poll` has just returned; not called at the end."""

    def derive(self, table: str, rows: pa.Table) -> dict[str, pa.Table]:
        """Return further rows by table, computed from new rows of `table`; both are written together."""
        return {}

    def revise(self, table: str, rows: pa.Table) -> pa.Table:
        """Return the final rows of a table from its recorded rows. Called at the end, before its files become one."""
        return rows

    def checkpoint(self) -> dict[str, Any]:
        """Return a small state as JSON. From it, another process can continue after the rows returned so far."""
        return {name: getattr(self, f"_{name}") for name in self.kept}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a state that `checkpoint` returned in another process."""
        for name in self.kept:
            if name in state:
                setattr(self, f"_{name}", state[name])

    def release(self) -> None:
        """Free the part of the logs that the rows returned so far were made from: these rows are on the disk."""


_log = logging.getLogger("stepscope")


class Assembly:
    """All assemblers of a rank, called together. `failed` maps those that were switched off to the reason."""

    def __init__(self, rank_folder: Path, clock: Clock, log: Path | None, trainer: int) -> None:
        """`log` is the event log in shared memory, if any; `trainer` the training if it started this, else 0."""
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
        """Return all rows made since the last call, as pairs of table name and rows. A table may have several pairs."""
        return self._collect("poll")

    def watch(self, made: Iterable[tuple[str, pa.Table]]) -> None:
        for table, rows in made:
            self._tell("watch", table, rows)

    def finish(self) -> list[tuple[str, pa.Table]]:
        return self._collect("finish")

    def release(self) -> None:
        self._tell("release")

    def checkpoint(self) -> dict[str, dict[str, Any]]:
        """Return the state of each assembler by its name. Another process can continue from these states."""
        return {name: self._call(name, "checkpoint") or {} for name in list(self._assemblers)}

    def restore(self, states: Mapping[str, dict[str, Any]]) -> None:
        for name, state in states.items():
            if name in self._assemblers and state:
                self._call(name, "restore", state)

    def may_revise(self, table: str) -> bool:
        return any(table in assembler.revises for assembler in self._assemblers.values())

    def revise(self, table: str, rows: pa.Table) -> pa.Table:
        for name in list(self._assemblers):
            revised = self._call(name, "revise", table, rows)
            rows = rows if revised is None else revised
        return rows

    def describe(self) -> dict[str, Any]:
        """Return the rank.json fields of all assemblers: lists concatenated, mappings merged, `events_lost` summed."""
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
        """Return the result of an assembler's method. If it raises, switch the assembler off and return None."""
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
    return OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
