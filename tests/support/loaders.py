"""Run a DataLoader under the `workers` signal alone, without a training loop, and return its rows of `stages`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
from torch.utils.data import dataloader as module

from collector.context.hooks import Undo
from collector.context.loaders import LoaderRegistry
from collector.edge import Edge
from collector.ring.clock import Clock
from collector.sidecar.assemblers.stages import StageAssembler
from collector.signals.workers import WorkersSignal


@dataclass
class NobodysLog:
    """No thread trains here, so nobody else writes down the fetches."""

    thread: list[int] = field(default_factory=lambda: [-2])


@dataclass
class LoaderContext:
    """As much of a SignalContext as the signal asks for."""

    events: Path
    loaders: LoaderRegistry = field(default_factory=LoaderRegistry)
    log: NobodysLog = field(default_factory=NobodysLog)
    undo: Undo = field(default_factory=Undo)
    failed: list[Exception] = field(default_factory=list)
    stack_reader: int = 0

    def when_imported(self, name: str, then: Callable[[], None]) -> None:
        """Look at no module that comes later."""

    def shielded(self, name: str) -> Edge:
        return Edge(self.failed.append)


@dataclass
class Recording:
    """`context` and `assembler` are there for what a test wants to look at besides the rows."""

    folder: Path
    context: LoaderContext
    signal: WorkersSignal
    assembler: StageAssembler

    def finish(self) -> pd.DataFrame:
        """Undo everything and return all rows."""
        self.signal.remove()
        self.context.undo.restore()
        assert self.context.failed == []
        pieces = [tables["stages"] for tables in (self.assembler.poll(), self.assembler.finish()) if tables]
        return pa.concat_tables(pieces).to_pandas()


def begin_recording(folder: Path) -> Recording:
    (folder / "events").mkdir(parents=True)
    context = LoaderContext(folder / "events")
    iterator = module._BaseDataLoaderIter
    make = iterator.__init__

    def count_epoch(self: Any, loader: Any) -> None:
        context.loaders.begin_epoch(loader)
        make(self, loader)

    context.undo.patch(iterator, "__init__", count_epoch)
    signal = WorkersSignal()
    signal.install(context)  # type: ignore[arg-type]
    return Recording(folder, context, signal, StageAssembler(folder, Clock.start()))


def record_loader(folder: Path, make_loader: Callable[[], Any], epochs: int = 1) -> pd.DataFrame:
    """Iterate over a loader and return what its stages did."""
    recording = begin_recording(folder)
    loader = make_loader()
    for _ in range(epochs):
        for _ in loader:
            pass
    del loader
    return recording.finish()


def sum_ms(rows: pd.DataFrame, stage: str, kind: str = "work") -> float:
    chosen = rows[(rows.stage == stage) & (rows.kind == kind)]
    return float(chosen.duration_ns.sum()) / 1e6
