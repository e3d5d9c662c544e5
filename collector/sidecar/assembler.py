"""What a plug-in of `collector.sidecar.assemblers` is: it turns what lies in `rank_<r>/events/` into rows of tables."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from collector.ring.clock import Clock


class Assembler(ABC):
    """Base of the plug-ins; a module declares `ASSEMBLER = <class>`. Must not import torch.

    Rows that were returned are written before `checkpoint()` is saved and `release()` is called. A new process that
    takes over gets the saved checkpoint through `restore()` and must return the rows that come after it, no others.
    """

    revises: tuple[str, ...] = ()
    """Tables whose rows `revise` may change at the end; the others are made one file without being held whole."""

    def __init__(self, rank_folder: Path, clock: Clock) -> None:
        self.rank_folder = rank_folder
        self.clock = clock

    def attach(self, log: Path) -> None:  # noqa: B027  optional
        """Use this for the event log of the training thread: it is in memory, and its file is a copy."""

    def follow(self, trainer: int) -> None:  # noqa: B027  optional
        """Get to know the process that trains, which has started this one, by its number."""

    def listen(self, others: Mapping[str, Assembler]) -> None:  # noqa: B027  optional
        """Get to know the other assemblers by name, once, before anything is read."""

    @abstractmethod
    def poll(self) -> dict[str, pa.Table]:
        """Return the new rows of each table since the last call."""

    def finish(self) -> dict[str, pa.Table]:
        """Return the rest: nothing more will be recorded."""
        return self.poll()

    def describe(self) -> dict[str, Any]:
        """Return fields of rank.json: lists are joined with those of other assemblers, mappings are merged."""
        return {}

    def watch(self, table: str, rows: pa.Table) -> None:  # noqa: B027  optional
        """See rows that some assembler has just returned while the run records, to act on them."""

    def derive(self, table: str, rows: pa.Table) -> dict[str, pa.Table]:
        """Return rows that follow from those that some assembler has just returned; they are written with them."""
        return {}

    def revise(self, table: str, rows: pa.Table) -> pa.Table:
        """Return the rows of a table as they are to stay, before its parts become one file."""
        return rows

    def checkpoint(self) -> dict[str, Any]:
        """Return a small JSON state from which another process can go on after the rows returned so far."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:  # noqa: B027  optional
        """Go on from what another process's checkpoint() returned."""

    def release(self) -> None:  # noqa: B027  optional
        """Free what the rows returned so far were made from: they are on disk."""
