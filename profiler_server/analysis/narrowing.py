"""A rank seen through a range of steps: what the filter of the pages reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from collector.format.parts import arrow_schema, find_files
from collector.format.run import RankRun, TableStatus
from collector.format.schema.errors import RunError
from collector.format.steps import SELECTED_COLUMNS, mark_judged, select_steps, train_steps

_LONGEST_NUMBER = 15


@dataclass(frozen=True)
class StepRange:
    """Steps `first` to `last`, both included."""

    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.first}-{self.last}" if self.first != self.last else f"{self.first}"


def parse_range(text: str) -> StepRange | None:
    """Read `10-40` or `12`, None for anything else; a range that runs backwards is turned round."""
    first, dash, last = text.strip().replace("–", "-").partition("-")
    ends = [part.strip() for part in ((first, last) if dash else (first, first))]
    if not all(part.isascii() and part.isdecimal() and len(part) <= _LONGEST_NUMBER for part in ends):
        return None
    return StepRange(*sorted(map(int, ends)))


class NarrowedRank(RankRun):
    """One rank whose tables hold only what belongs to the training steps of a range.

    The warm-up stays what it is in the whole run. Tables without a column of steps are cut by time; those that
    describe the rank itself, such as tracks, are whole.
    """

    def __init__(self, rank: RankRun, steps: StepRange) -> None:
        super().__init__(rank.folder.parents[1], rank.rank)
        self.steps = steps

    @cached_property
    def span_ns(self) -> tuple[int, int]:
        """Return where the first step begins and the last one ends; nothing lies in between where there is none."""
        within = self._find_rows("steps") & (ds.field("kind") == "train")
        rows = super().table("steps", ("start_ns", "duration_ns"), within)
        if not rows.num_rows:
            return (0, 0)
        return pc.min(rows["start_ns"]).as_py(), pc.max(pc.add(rows["start_ns"], rows["duration_ns"])).as_py()

    def _find_rows(self, name: str) -> ds.Expression | None:
        """Return what tells the rows of a table that belong to the range, None for a table that is shown whole."""
        names = arrow_schema(name).names
        if "step" in names:
            return (ds.field("step") >= self.steps.first) & (ds.field("step") <= self.steps.last)
        if "start_ns" in names:
            begin, end = self.span_ns
            return (ds.field("start_ns") >= begin) & (ds.field("start_ns") < end)
        return None

    def table(self, name: str, columns: Sequence[str] | None = None, where: ds.Expression | None = None) -> pa.Table:
        """Read the rows of a table that belong to the range. Raises as `RankRun.table` does."""
        within = None if name == "steps" else self._find_rows(name)
        clause = where if within is None else within if where is None else within & where
        if name != "steps":
            return super().table(name, columns, clause)
        wanted = list(columns) if columns is not None else arrow_schema(name).names
        whole = super().table(name, list(dict.fromkeys([*wanted, *SELECTED_COLUMNS, "start_ns"])), where)
        return self._narrow_steps(whole).select(wanted)

    def _narrow_steps(self, whole: pa.Table) -> pa.Table:
        """Cut by time, so that evaluation between two of the steps stays, and say how many rows are warm-up."""
        begin, end = self.span_ns
        warm = select_steps(whole).warm_up
        late = pc.and_(pc.greater_equal(whole["start_ns"], begin), pc.less(whole["start_ns"], end))
        numbers = train_steps(whole)["step"].to_numpy()[warm]
        inside = ((numbers >= self.steps.first) & (numbers <= self.steps.last)).sum()
        return mark_judged(whole.filter(late), int(inside))

    def status(self, name: str) -> TableStatus:
        """Say whether a table can be shown; one without a row in the range is empty."""
        status = super().status(name)
        if status.state != "there" or self._find_rows(name) is None or self._has_rows(name):
            return status
        return TableStatus("empty", f"Nothing of the {name} was recorded in the chosen steps, {self.steps}.")

    def _has_rows(self, name: str) -> bool:
        column = arrow_schema(name).names[0]
        return bool(self.table(name, (column,)).num_rows)


def find_step_span(rank: RankRun) -> StepRange | None:
    """Return the first and the last training step of a rank, None where it has none or they cannot be read."""
    if not find_files(rank.folder, "steps"):
        return None
    try:
        numbers = rank.table("steps", ("step",), ds.field("kind") == "train")["step"]
    except RunError:
        return None
    return StepRange(pc.min(numbers).as_py(), pc.max(numbers).as_py()) if len(numbers) else None
