"""Whether an error ended a job: cheap enough for every line of the run list. How it ended is for the pages of the run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from collector.format.rank import RankRun
from collector.format.run import Run
from collector.format.schema.errors import RunError
from collector.format.schema.facts import UNTOLD
from collector.format.schema.manifest import RankManifest

ListState = Literal["recording", "complete", "failed", "crashed", "imported"]
"""The state of a job: that of its ranks, or `failed` where they are complete and an error ended one."""
BY_HAND = "KeyboardInterrupt"


def read_ended_by(rank: RankRun) -> str:
    """Return the exception that ended a rank, "" for none, whatever is shown of it. Raises as `RankRun.manifest` does."""
    return read_error((rank if rank.lens.redactor is None else rank.whole).manifest)


def read_error(manifest: RankManifest) -> str:
    """Return the exception that ended a rank as its manifest is seen here, "" for none."""
    by = manifest.facts.get("ended_by")
    return by if isinstance(by, str) and by != UNTOLD else ""


def has_failed(run: Run, ranks: Sequence[int]) -> bool:
    """Say whether an error ended one of these ranks. Who stops a training of one process by hand is content with it."""
    if run.manifest.source != "collector":
        return False
    errors = [by for rank in ranks if (by := _read_rank(run, rank))]
    return any(not (run.manifest.world_size == 1 and by.startswith(BY_HAND)) for by in errors)


def _read_rank(run: Run, rank: int) -> str:
    try:
        return read_ended_by(run.read_rank(rank))
    except RunError:
        return ""
