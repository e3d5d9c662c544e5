"""The training steps of a rank, or the batches of an inference run in their place."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
import pyarrow as pa

from collector.format.intervals import Ints
from collector.format.rank import read_step_rows
from collector.format.run import RankRun
from collector.format.steps import StepSelection, read_integers, select_steps, train_steps
from profiler_server.format import form_plural


@dataclass(frozen=True)
class StepData:
    """`every` is the table as recorded; `steps` what the page counts as steps: training, or all batches of inference.

    `selection` and `column` cover the rows from `inside`'s first up to its second only, the whole being judged all the same.
    """

    every: pa.Table
    steps: pa.Table
    infers: bool
    inside: tuple[int, int | None] = (0, None)

    @cached_property
    def selection(self) -> StepSelection:
        whole = select_steps(self.steps)
        return StepSelection(*(getattr(whole, entry.name)[slice(*self.inside)] for entry in fields(whole)))

    @cached_property
    def _train(self) -> pa.Table:
        return train_steps(self.steps)

    def column(self, name: str) -> Ints:
        return read_integers(self._train, name)[slice(*self.inside)]

    @property
    def noun(self) -> str:
        return "batch" if self.infers else "step"

    @property
    def nouns(self) -> str:
        return form_plural(self.noun)


def read_step_data(rank: RankRun) -> StepData:
    """Read the `steps` table. Raises as `RankRun.table` does."""
    rows = read_step_rows(rank)
    return StepData(rows.every, rows.steps, rows.infers)


def narrow(data: StepData, first: int, last: int) -> StepData:
    """Return the same steps seen from `first` to `last` only, both included."""
    begin, end = np.searchsorted(data.selection.step, (first, last + 1)).tolist()
    return StepData(data.every, data.steps, data.infers, (begin, end))
