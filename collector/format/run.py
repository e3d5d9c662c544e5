"""Open a run directory: typed, validated access to its manifest, its ranks and their tables.

pandas is imported only when a DataFrame is requested.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from collector.format.finding import find_run
from collector.format.lens import Lens, Redactor
from collector.format.rank import RankRun, TableState, TableStatus
from collector.format.schema import layout
from collector.format.schema.errors import ClosedRunError, RunNotFoundError, TableBrokenError
from collector.format.schema.inside import refuse_links
from collector.format.schema.manifest import RunManifest, RunState, decode_manifest
from collector.format.schema.modes import spell_closed
from collector.format.schema.reading import read_small_text

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["RankRun", "Run", "TableState", "TableStatus", "open_run"]


class Run:
    """A run directory, read from its files; `collector.notebook.run.Run` can also print and draw the run."""

    def __init__(self, path: Path, redactor: Redactor | None = None) -> None:
        self.path = path
        self.redactor = redactor

    @property
    def key(self) -> tuple[str, Redactor | None]:
        """The cache key for everything computed from this run and redactor."""
        return str(self.path), self.redactor

    @cached_property
    def manifest(self) -> RunManifest:
        """Return run.json. Raises RunNotFoundError, TableBrokenError or NewerSchemaError."""
        path = layout.run_file(self.path)
        try:
            text = read_small_text(path)
        except FileNotFoundError:
            raise RunNotFoundError(f"{self.path} is no run: {path} does not exist") from None
        except (OSError, UnicodeDecodeError) as error:
            raise TableBrokenError(f"{path} cannot be read ({error}); {layout.advise_on_manifest(path)}") from None
        manifest = decode_manifest(RunManifest, text, str(path), self.redactor is None)
        return manifest if self.redactor is None else self.redactor.redact_run(manifest)

    @property
    def ranks(self) -> tuple[int, ...]:
        """Return the ranks that have a folder. Raises RunNotFoundError if the run is gone."""
        try:
            return layout.find_ranks(self.path)
        except OSError as error:
            raise RunNotFoundError(f"{self.path} cannot be listed ({error})") from None

    def rank(self, rank: int | None = None) -> RankRun:
        """Return the given rank, the first rank for None. Raises RunNotFoundError naming the existing ranks."""
        ranks = self.ranks
        if not ranks:
            raise RunNotFoundError(f"{self.path} holds no rank yet")
        if rank is not None and rank not in ranks:
            raise RunNotFoundError(f"{self.path} has no rank {rank}; it has: {', '.join(map(str, ranks[:20]))}")
        return self.read_rank(ranks[0] if rank is None else rank)

    def read_rank(self, rank: int) -> RankRun:
        """Return a rank without checking that it exists."""
        return RankRun(self.path, rank, Lens(redactor=self.redactor))

    @property
    def state(self) -> RunState:
        """Return the first state of crashed, recording, imported, complete that any rank has; crashed without ranks."""
        states = {self.read_rank(rank).state for rank in self.ranks}
        for state in ("crashed", "recording", "imported", "complete"):
            if state in states:
                return state
        return "crashed"

    @property
    def is_recovered(self) -> bool:
        """Return whether the recording of some ranks was cut off, and all their data is in the tables."""
        cut_off = [rank for number in self.ranks if (rank := self.read_rank(number)).state == "crashed"]
        return bool(cut_off) and all(rank.is_recovered for rank in cut_off)

    def table(self, name: str, rank: int | None = None, columns: Sequence[str] | None = None) -> pa.Table:
        """Read a table of one rank, the first for None. Raises as `RankRun.table` does."""
        return self.rank(rank).table(name, columns)

    def frame(self, name: str, rank: int | None = None, columns: Sequence[str] | None = None) -> pd.DataFrame:
        """Read a table of one rank, the first for None, as a pandas DataFrame. Raises as `RankRun.table` does."""
        return self.rank(rank).frame(name, columns)


def open_run(path: str | Path, base_dir: str | Path | None = None) -> Run:
    """Open the run at a path to read it only; `stepscope.open_run` documents the accepted paths and the errors."""
    run = Run(find_folder(path, base_dir))
    run.manifest  # noqa: B018  fail here, not at the first use
    return run


def find_folder(path: str | Path, base_dir: str | Path | None = None) -> Path:
    """Return the directory of the run that `open_run` opens. Raises the errors of `open_run` likewise."""
    folder = _find_folder(Path(path))
    if base_dir is not None and (folder is None or not layout.run_file(folder).is_file()):
        with suppress(*([RunNotFoundError] if folder is not None and folder.is_file() else [])):
            folder = find_run(Path(base_dir).expanduser(), str(path))
    if folder is None:
        raise RunNotFoundError(f"{str(path)[:200]!r} is no path")
    if folder.is_file():
        from collector.format.packed import open_pack  # which reads tables, and no training needs it

        folder = open_pack(folder)
    refuse_links(folder)
    return folder


def _find_folder(path: Path) -> Path | None:
    """Return the directory that would hold `profiler/`; None for an impossible path, such as one with a null byte."""
    try:
        folder = path.expanduser().resolve()
        is_inner = folder.name == layout.PROFILER_FOLDER and (folder / layout.RUN_FILE).is_file()
        with suppress(FileNotFoundError, NotADirectoryError):
            os.stat(layout.run_file(folder))
    except PermissionError:
        raise ClosedRunError(spell_closed(layout.profiler_path(folder))) from None
    except (OSError, RuntimeError, ValueError):
        return None
    return folder.parent if is_inner else folder
