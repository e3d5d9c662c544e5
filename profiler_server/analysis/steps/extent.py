"""From which step to which a rank was recorded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pyarrow.compute as pc

from collector.format.evaluation import read_step_rows
from collector.format.parts import find_files
from collector.format.run import RankRun
from collector.format.schema.errors import RunError
from collector.format.steps import train_steps
from profiler_server.derive.derived import derived


@dataclass(frozen=True)
class StepSpan:
    """The first and the last step of a rank; `noun` is what they are called, batches in a run that only infers."""

    first: int
    last: int
    noun: Literal["step", "batch"] = "step"


@derived()
def find_step_span(rank: RankRun) -> StepSpan | None:
    """Return the first and the last step of a rank, None where it has none or they cannot be read."""
    # Every page asks, and the steps of a long run take a while to read.
    if not find_files(rank.folder, "steps"):
        return None
    try:
        rows = read_step_rows(rank, ("kind", "step"))
    except RunError:
        return None
    numbers = train_steps(rows.steps)["step"]
    return StepSpan(pc.min(numbers).as_py(), pc.max(numbers).as_py(), rows.noun) if len(numbers) else None
