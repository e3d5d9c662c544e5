"""Evaluation batches: apart from training steps, and in their place where a run only infers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from collector.format.steps import (
    Distribution,
    PhaseShare,
    read_integers,
    share_phases,
    sum_recorded,
    summarize_durations,
)

if TYPE_CHECKING:
    from collector.format.rank import RankRun

_FIRST_BATCH = b"stepscope.first_batch"


@dataclass(frozen=True)
class StepRows:
    """The `steps` table of a rank: `every` row as it was recorded, and the same with what counts as its steps.

    Those are the training steps; of a run that only infers its evaluation batches, numbered from 1.
    """

    every: pa.Table
    steps: pa.Table
    infers: bool

    @property
    def noun(self) -> Literal["step", "batch"]:
        """What one of them is called wherever it is shown."""
        return "batch" if self.infers else "step"


@dataclass(frozen=True)
class EvaluationSummary:
    """All evaluation batches of the run; `total_ns` is their time in all, `share_frac` that of the recorded time."""

    count: int
    total_ns: int
    share_frac: float
    duration_ns: Distribution
    phases: tuple[PhaseShare, ...]


def summarize_evaluation(steps: pa.Table) -> EvaluationSummary | None:
    """Summarise the evaluation batches of a `steps` table; None if there are none."""
    batches = number_batches(steps)
    durations = read_integers(batches, "duration_ns")
    spread = summarize_durations(durations)
    if spread is None:
        return None
    total = int(durations.sum())
    whole = sum_recorded(steps)
    return EvaluationSummary(len(durations), total, total / whole if whole else 0.0, spread, share_phases(batches))


def number_batches(steps: pa.Table) -> pa.Table:
    """Return the evaluation batches as if they were training steps: what an inference run is read as.

    They are numbered from 1, those of a part of a run as `mark_first_batch` tells.
    """
    batches = steps.filter(pc.equal(steps["kind"].cast(pa.string()), "eval"))
    kinds = pa.array(["train"] * batches.num_rows, pa.string()).dictionary_encode()
    first = int((steps.schema.metadata or {}).get(_FIRST_BATCH, 1))
    numbers = pa.array(np.arange(first, first + batches.num_rows), pa.int64())
    numbered = batches.set_column(batches.schema.get_field_index("step"), "step", numbers)
    return numbered.set_column(batches.schema.get_field_index("kind"), "kind", kinds)


def mark_first_batch(steps: pa.Table, number: int) -> pa.Table:
    """Return part of the rows of a run that only infers, whose first batch has that number in the whole run."""
    return steps.replace_schema_metadata({**(steps.schema.metadata or {}), _FIRST_BATCH: str(number).encode()})


def read_step_rows(rank: RankRun, columns: Sequence[str] | None = None) -> StepRows:
    """Read the steps of a rank. Raises as `RankRun.table` does."""
    return count_as_steps(rank.table("steps", columns))


def count_as_steps(every: pa.Table) -> StepRows:
    """Tell what of a `steps` table counts as its steps."""
    if has_training(every):
        return StepRows(every, every, infers=False)
    batches = number_batches(every)
    return StepRows(every, batches, infers=batches.num_rows > 0)


def has_training(steps: pa.Table) -> bool:
    """Say whether the run trained; a run of evaluation batches alone is an inference run."""
    return bool(pc.any(pc.equal(steps["kind"].cast(pa.string()), "train")).as_py())
