"""Read a rank through a lens: whole, limited to a range of steps, or without the names that the user chose.

A lens (the settings of the view) belongs to a rank (`RankRun.lens`) and to its cache key, so a result for a view is
never used for the whole rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from collector.format.parts import read_table
from collector.format.schema.manifest import RankManifest, RunManifest
from collector.format.steps import (
    SELECTED_COLUMNS,
    count_as_steps,
    has_training,
    mark_first_batch,
    mark_judged,
    number_batches,
    select_steps,
    train_steps,
)
from collector.format.stored_files import arrow_schema

_LONGEST_NUMBER = 15


@dataclass(frozen=True)
class StepRange:
    """Steps `first` to `last`, both included. In an inference run, the numbers are those of batches."""

    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.first}-{self.last}" if self.first != self.last else f"{self.first}"


def parse_range(text: str) -> StepRange | None:
    """Parse a range such as `10-40` or `12`; None for other text. The ends of a reversed range are swapped."""
    first, dash, last = text.strip().replace("–", "-").partition("-")
    ends = [part.strip() for part in ((first, last) if dash else (first, first))]
    if not all(part.isascii() and part.isdecimal() and len(part) <= _LONGEST_NUMBER for part in ends):
        return None
    return StepRange(*sorted(map(int, ends)))


class Redactor(Protocol):
    """A replacer of the names that the user chose in manifests and tables. Two redactors are never equal: each has its
    own list of names."""

    def redact_run(self, manifest: RunManifest) -> RunManifest: ...

    def redact_rank(self, manifest: RankManifest) -> RankManifest: ...

    def redact_table(self, name: str, table: pa.Table) -> pa.Table: ...


@dataclass(frozen=True)
class Lens:
    """The view of a rank: a range of steps and a redactor; None for all steps, and for all names unchanged."""

    steps: StepRange | None = None
    redactor: Redactor | None = None


WHOLE = Lens()


class LensReader:
    """A reader of the tables of a rank's folder through a lens.

    In a range of steps, the warm-up steps are the same as in the whole run. Tables without a step column are cut by
    time; tables that describe the rank itself, such as tracks, are not cut.
    """

    def __init__(self, folder: Path, lens: Lens) -> None:
        self._folder = folder
        self._steps = lens.steps
        self._redactor = lens.redactor

    def read(self, name: str, columns: Sequence[str] | None = None, where: pc.Expression | None = None) -> pa.Table:
        """Read a table through the lens. Raises as `parts.read_table`."""
        table = self._read_range(name, columns, where)
        return table if self._redactor is None else self._redactor.redact_table(name, table)

    def cuts(self, name: str) -> bool:
        """Return whether the lens may leave out rows of the table, because it has a range of steps."""
        return self._steps is not None and bool({"step", "start_ns"} & set(arrow_schema(name).names))

    @cached_property
    def span_ns(self) -> tuple[int, int]:
        """The start of the first visible step and the end of the last, in ns since the epoch; (0, 0) without steps."""
        if self._infers:
            rows = number_batches(self._read_bare_steps())
        else:
            rows = self._read_bare_steps(pc.field("kind") == "train")
        if self._steps is not None:
            rows = rows.filter(self._find_numbers(self._steps))
        if not rows.num_rows:
            return (0, 0)
        return pc.min(rows["start_ns"]).as_py(), pc.max(pc.add(rows["start_ns"], rows["duration_ns"])).as_py()

    @cached_property
    def _infers(self) -> bool:
        """Whether the range of steps is one of evaluation batches, because the rank has no training steps."""
        return self._steps is not None and not has_training(self._read_bare_steps())

    def _read_bare_steps(self, where: pc.Expression | None = None) -> pa.Table:
        return read_table(self._folder, "steps", ("kind", "step", "start_ns", "duration_ns"), where)

    def _read_range(self, name: str, columns: Sequence[str] | None, where: pc.Expression | None) -> pa.Table:
        if self._steps is None or not self.cuts(name):
            return read_table(self._folder, name, columns, where)
        if name == "steps":
            wanted = list(columns) if columns is not None else arrow_schema(name).names
            needed = list(dict.fromkeys([*wanted, *SELECTED_COLUMNS]))
            return self._cut_steps(read_table(self._folder, name, needed, where), self._steps).select(wanted)
        within = self._find_rows(name, self._steps)
        return read_table(self._folder, name, columns, within if where is None else within & where)

    def _find_rows(self, name: str, steps: StepRange) -> pc.Expression:
        columns = arrow_schema(name).names
        # Without training steps, no row of another table has a step number.
        if "step" in columns and not (self._infers and "start_ns" in columns):
            return self._find_numbers(steps)
        begin, end = self.span_ns
        return (pc.field("start_ns") >= begin) & (pc.field("start_ns") < end)

    def _find_numbers(self, steps: StepRange) -> pc.Expression:
        return (pc.field("step") >= steps.first) & (pc.field("step") <= steps.last)

    def _cut_steps(self, whole: pa.Table, steps: StepRange) -> pa.Table:
        begin, end = self.span_ns
        counted = count_as_steps(whole).steps
        warm = select_steps(counted).warm_up
        late = pc.and_(pc.greater_equal(whole["start_ns"], begin), pc.less(whole["start_ns"], end))
        numbers = train_steps(counted)["step"].to_numpy()[warm]
        inside = ((numbers >= steps.first) & (numbers <= steps.last)).sum()
        return mark_first_batch(mark_judged(whole.filter(late), int(inside)), steps.first)
