"""The few figures of a run that its line in the run list shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from collector.run import Run
from collector.schema.errors import RunError
from collector.schema.manifest import RunManifest, RunState

Integers = npt.NDArray[np.int64]
COUNTED_RANKS = 8
"""Ranks whose steps are read for the figures; the line of a run with a thousand ranks must stay cheap."""


@dataclass(frozen=True)
class Headline:
    """`step_p50_ns` and `data_wait_frac` are over the train steps outside of detailed windows, None without any."""

    state: RunState
    ranks: tuple[int, ...]
    steps: int
    step_p50_ns: float | None
    data_wait_frac: float | None


@dataclass(frozen=True)
class RunEntry:
    """One line of the run list. `delta_frac` is the change of the median step against the run `previous_id`."""

    id: str
    path: Path
    manifest: RunManifest
    headline: Headline
    previous_id: str | None = None
    delta_frac: float | None = None

    @property
    def name(self) -> str:
        return self.manifest.name or self.id

    @property
    def state(self) -> RunState:
        return self.headline.state


def read_headline(run: Run) -> Headline:
    """Read the headline figures of a run. A rank whose steps cannot be read is left out of them.

    Raises RunNotFoundError, NewerSchemaError or TableBrokenError if no rank's manifest can be read.
    """
    ranks = run.ranks
    durations, waits = _read_steps(run, ranks)
    total = int(durations.sum())
    return Headline(
        state=read_state(run, ranks),
        ranks=ranks,
        steps=len(durations),
        step_p50_ns=float(np.median(durations)) if len(durations) else None,
        data_wait_frac=float(waits.sum()) / total if total else None,
    )


def read_state(run: Run, ranks: Sequence[int]) -> RunState:
    """Return the worst state of the ranks that can be read; crashed when there is none."""
    states = {_read_rank_state(run, rank) for rank in ranks[:COUNTED_RANKS]}
    worst_first: tuple[RunState, ...] = ("crashed", "recording", "imported", "complete")
    return next((state for state in worst_first if state in states), "crashed")


def _read_rank_state(run: Run, rank: int) -> RunState:
    try:
        return run.rank(rank).state
    except RunError:
        return "crashed"


def _read_steps(run: Run, ranks: Sequence[int]) -> tuple[Integers, Integers]:
    durations, waits = [], []
    for rank in ranks[:COUNTED_RANKS]:
        try:
            table = run.table("steps", rank, ("kind", "duration_ns", "data_wait_ns", "detailed"))
        except RunError:
            continue  # its pages say what is wrong with it; the list shows what the other ranks have
        train = np.asarray(table["kind"].to_numpy(zero_copy_only=False) == "train")
        detailed = table["detailed"].to_numpy(zero_copy_only=False).astype(bool)
        kept = train & ~detailed if (train & ~detailed).any() else train
        durations.append(table["duration_ns"].to_numpy()[kept])
        waits.append(table["data_wait_ns"].to_numpy()[kept])
    empty = np.empty(0, np.int64)
    return (np.concatenate(durations), np.concatenate(waits)) if durations else (empty, empty)
