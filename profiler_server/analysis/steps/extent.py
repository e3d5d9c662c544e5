"""From which step to which a rank was recorded."""

from __future__ import annotations

import pyarrow.compute as pc

from collector.format.lens import StepRange
from collector.format.parts import find_files
from collector.format.run import RankRun
from collector.format.schema.errors import RunError


def find_step_span(rank: RankRun) -> StepRange | None:
    """Return the first and the last training step of a rank, None where it has none or they cannot be read."""
    if not find_files(rank.folder, "steps"):
        return None
    try:
        numbers = rank.table("steps", ("step",), pc.field("kind") == "train")["step"]
    except RunError:
        return None
    return StepRange(pc.min(numbers).as_py(), pc.max(numbers).as_py()) if len(numbers) else None
