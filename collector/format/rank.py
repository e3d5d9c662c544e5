"""One rank of a run: typed, validated access to its manifest and tables.

pandas is imported only when a DataFrame is requested.
"""

from __future__ import annotations

import contextlib
import difflib
import socket
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pyarrow as pa
import pyarrow.compute as pc

from collector.format import parts
from collector.format.alive import is_alive
from collector.format.keeping import keep
from collector.format.lens import WHOLE, Lens, LensReader, StepRange
from collector.format.schema import layout
from collector.format.schema.errors import OptionError, RunError, StepscopeError, TableMissingError
from collector.format.schema.layout import advise_on_manifest
from collector.format.schema.manifest import RankManifest, RunState, decode_manifest
from collector.format.schema.reading import read_small_text
from collector.format.schema.tables import TABLES
from collector.format.schema.wording import format_number_of
from collector.format.standstills import Standstill, mark_standstills, read_standstills
from collector.format.steps import NOUN_COLUMNS, StepRows, count_as_steps, mark_reading
from collector.format.stored_files import arrow_schema, name_damage

if TYPE_CHECKING:
    import pandas as pd

HEARTBEAT_LIMIT_S = 60.0
"""A rank on another host is considered crashed if it has not written its manifest for this long."""

TableState = Literal["there", "empty", "off", "missing", "failed", "broken"]


@dataclass(frozen=True)
class TableStatus:
    """Whether a table can be shown: only if `state` is "there". `reason` is a sentence for the user on why it cannot be
    shown, "" if it can."""

    state: TableState
    reason: str = ""


class RankRun:
    """One rank of a run, seen through a lens (steps, redactor). Tables are read at each call, the manifest only once."""

    def __init__(self, run_path: Path, rank: int, lens: Lens = WHOLE) -> None:
        self.rank = rank
        self.run_path = run_path
        self.lens = lens
        self.folder = layout.rank_path(run_path, rank)
        self._file = layout.rank_file(run_path, rank)
        self._reader = LensReader(self.folder, lens)

    def __repr__(self) -> str:
        try:
            return f"RankRun({self.rank}, {self.state}, {describe_steps(self)})"
        except (StepscopeError, OSError) as error:
            return f"RankRun({self.rank}: {error})"

    @property
    def key(self) -> tuple[str, Lens]:
        """The cache key for everything computed from this rank and lens."""
        return str(self.folder), self.lens

    def through(self, steps: StepRange | None) -> RankRun:
        """Return this rank limited to a range of its steps. None means all steps."""
        return RankRun(self.run_path, self.rank, replace(self.lens, steps=steps))

    @property
    def whole(self) -> RankRun:
        """This rank without any lens: all steps, with the user's names."""
        return self if self.lens == WHOLE else RankRun(self.run_path, self.rank)

    @property
    def span_ns(self) -> tuple[int, int]:
        """The start of the first visible step and the end of the last, in ns; (0, 0) for no step. Raises as `table`.

        In an inference run seen through a range, evaluation batches are the steps.
        """
        return self._reader.span_ns

    @cached_property
    def manifest(self) -> RankManifest:
        """Return rank.json. Raises TableMissingError, TableBrokenError or NewerSchemaError."""
        try:
            text = read_small_text(self._file)
        except (OSError, UnicodeDecodeError) as error:
            raise TableMissingError(
                f"{self._file} cannot be read ({error}); {advise_on_manifest(self._file)}"
            ) from None
        redactor = self.lens.redactor
        manifest = decode_manifest(RankManifest, text, str(self._file), redactor is None)
        return manifest if redactor is None else redactor.redact_rank(manifest)

    @property
    def state(self) -> RunState:
        """Return the state in the manifest; but `crashed` if it is `recording` and no recorder lives."""
        manifest = self.manifest
        if manifest.state == "recording" and not _is_recording(RankRun(self.run_path, self.rank).manifest):
            return "crashed"
        return manifest.state

    @property
    def is_recovered(self) -> bool:
        """Return whether the rank's recording was cut off, and all its data is in its tables."""
        return self.state == "crashed" and self.manifest.ended_unix_ns is not None

    def table(self, name: str, columns: Sequence[str] | None = None, where: pc.Expression | None = None) -> pa.Table:
        """Read a table. Raises TableMissingError, TableBrokenError, NewerSchemaError; OptionError for an unknown name."""
        _check_table(name)
        table = self._reader.read(name, columns, where)
        return mark_steps(self, table) if name == "steps" else table

    def frame(self, name: str, columns: Sequence[str] | None = None) -> pd.DataFrame:
        """Read a table as a pandas DataFrame; nullable integer columns are Int64. Raises as `table` does."""
        table = self.table(name, columns)
        return make_frame(table, [column.name for column in TABLES[name].columns if column.nullable])

    def count_rows(self, name: str) -> int:
        """Return the number of rows of a whole table without reading the rows; 0 if the table was never written."""
        total = 0
        for path in parts.find_files(self.folder, name):
            found = path.stat()
            # A footer of thousands of row groups takes milliseconds to read.
            stamp = found.st_size, found.st_mtime_ns
            total += keep(("rows", str(path)), stamp, partial(parts.count_rows, path))
        return total

    def count_steps(self, kind: str = "train") -> int:
        """Return the number of recorded training steps, or of rows of another kind. Raises as `table` does."""
        if self.lens.steps is not None:
            return len(self.table("steps", ["kind"], pc.field("kind") == kind))
        return parts.count_equal(self.folder, "steps", "kind", kind)

    def status(self, name: str) -> TableStatus:
        """Return whether the table `name` can be shown, and the reason if it cannot. Raises OptionError for an unknown
        table."""
        _check_table(name)
        option = TABLES[name].option
        signal = next((s for s in self.manifest.signals if s.name in (option, name) and s.state != "on"), None)
        files = parts.find_files(self.folder, name)
        if not files:
            if signal is None:
                return TableStatus("missing", f"This run has no {name} table.")
            return TableStatus("failed" if signal.state == "failed" else "off", signal.reason)
        try:
            rows = self.count_rows(name)
        except (OSError, pa.ArrowException) as error:
            file = files[0] if len(files) == 1 else self.folder / name
            return TableStatus("broken", name_damage(file, str(error).splitlines()[0]))
        if not rows:
            return TableStatus("empty", f"The {name} table is empty.")
        if self._reader.cuts(name) and not self.table(name, (arrow_schema(name).names[0],)).num_rows:
            return TableStatus("empty", f"Nothing of the {name} was recorded in the chosen steps, {self.lens.steps}.")
        return TableStatus("there")


def mark_steps(rank: RankRun, steps: pa.Table) -> pa.Table:
    """Return `steps` with metadata on those that no average covers: standstills, and reading a window's trace."""
    found: tuple[Standstill, ...] = ()
    with contextlib.suppress(RunError):  # code that needs the manifest reports the error
        manifest = rank.whole.manifest
        found = read_standstills(rank.rank, manifest.facts)
        if read := [(one.read_start_ns, one.read_end_ns) for one in manifest.windows if one.read_end_ns]:
            steps = mark_reading(steps, read)
    return mark_standstills(steps, rank.run_path, rank.rank, found)


def read_step_rows(rank: RankRun, columns: Sequence[str] | None = None) -> StepRows:
    """Read the table `steps`: the `columns`, and those that tell the noun of a row. Raises as `RankRun.table`."""
    wanted = None if columns is None else tuple(dict.fromkeys((*columns, *NOUN_COLUMNS)))
    return count_as_steps(rank.table("steps", wanted))


def describe_steps(rank: RankRun) -> str:
    """Return the number of training steps in words; "no steps" if the table `steps` cannot be read."""
    try:
        return format_number_of(rank.count_steps(), "step")
    except StepscopeError:
        return "no steps"


def make_frame(table: pa.Table, optional: Collection[str]) -> pd.DataFrame:
    """Return a table as a pandas DataFrame. Integer columns in `optional` are Int64 with NA: floats would round ids."""
    import pandas as pd

    nullable = {name for name in optional if name in table.column_names and pa.types.is_integer(table[name].type)}
    frame = table.drop_columns(sorted(nullable)).to_pandas()
    for place, name in enumerate(table.column_names):
        if name in nullable:
            frame.insert(place, name, table[name].cast(pa.int64()).to_pandas(types_mapper=lambda _: pd.Int64Dtype()))
    return frame


def _check_table(name: str) -> None:
    if name not in TABLES:
        near = difflib.get_close_matches(name, TABLES, 1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise OptionError(f"there is no table {name!r}; {hint}the tables are: {', '.join(sorted(TABLES))}")


def _is_recording(manifest: RankManifest) -> bool:
    if manifest.host != socket.gethostname():
        return time.time() - manifest.heartbeat_unix_ns / 1e9 < HEARTBEAT_LIMIT_S
    return is_alive(manifest.pid, manifest.pid_started)
