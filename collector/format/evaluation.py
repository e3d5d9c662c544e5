"""Evaluation batches: apart from training steps, and in their place where a run only infers."""

from __future__ import annotations

from dataclasses import dataclass

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
    """Return the evaluation batches as if they were training steps, numbered from 1: what an inference run is read as."""
    batches = steps.filter(pc.equal(steps["kind"].cast(pa.string()), "eval"))
    kinds = pa.array(["train"] * batches.num_rows, pa.string()).dictionary_encode()
    numbers = pa.array(np.arange(1, batches.num_rows + 1), pa.int64())
    numbered = batches.set_column(batches.schema.get_field_index("step"), "step", numbers)
    return numbered.set_column(batches.schema.get_field_index("kind"), "kind", kinds)


def read_as_steps(steps: pa.Table) -> pa.Table:
    """Return the table as it is if the run trained, else its evaluation batches as steps."""
    return steps if has_training(steps) else number_batches(steps)


def has_training(steps: pa.Table) -> bool:
    """Say whether the run trained; a run of evaluation batches alone is an inference run."""
    return bool(pc.any(pc.equal(steps["kind"].cast(pa.string()), "train")).as_py())
