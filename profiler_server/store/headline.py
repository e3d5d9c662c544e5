"""The headline figures of a run in the list of runs, and whether an error ended its job."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from collector.format.noise import measure_noise
from collector.format.rank import RankRun, read_step_rows
from collector.format.run import Run
from collector.format.schema.errors import RunError, read_or
from collector.format.schema.facts import UNTOLD
from collector.format.schema.manifest import RankManifest, RunManifest, RunState
from collector.format.steps import (
    SELECTED_COLUMNS,
    read_integers,
    select_steps,
    summarize_durations,
    tells_waits,
    train_steps,
)
from collector.hangs.live import describe_live_hang, find_standing

ListState = Literal["recording", "complete", "failed", "crashed", "imported"]
"""The state of a job: the state of its ranks, or `failed` if they are complete and an error ended a rank."""
BY_HAND = "KeyboardInterrupt"


def read_ended_by(rank: RankRun) -> str:
    """Return the exception that ended a rank, also of a redacted run; "" for none. Raises as `RankRun.manifest`."""
    return read_error((rank if rank.lens.redactor is None else rank.whole).manifest)


def read_error(manifest: RankManifest) -> str:
    """Return the exception that ended a rank, as the manifest gives it; "" if there is none, or if it is redacted."""
    by = manifest.facts.get("ended_by")
    return by if isinstance(by, str) and by != UNTOLD else ""


def has_failed(run: Run, ranks: Sequence[int]) -> bool:
    """Return whether an error ended one of `ranks`. Ctrl-C is no error in a training that has a single process."""
    if run.manifest.is_imported:
        return False
    errors = [by for rank in ranks if (by := read_or("", read_ended_by, run.read_rank(rank)))]
    return any(not (run.manifest.world_size == 1 and by.startswith(BY_HAND)) for by in errors)


COUNTED_RANKS = 8
"""Number of ranks whose steps are read for the figures, so that a run of a thousand ranks stays cheap to list."""


_LONGEST_NAME = 80
_SHORT_ID = 9


@dataclass(frozen=True)
class Setup:
    """What a run was recorded on and with: runs that differ in it are not of one history. All is of its first rank.

    `device` is the accelerator's name, "" for none. `batch_size` is that of the first loader, None if it has none.
    `commit` is the id of the git commit, "" if unknown; `is_dirty`: tracked files differed from it.
    """

    device: str = ""
    batch_size: int | None = None
    commit: str = ""
    is_dirty: bool = False

    @property
    def short_commit(self) -> str:
        return self.commit[:_SHORT_ID]


@dataclass(frozen=True)
class Headline:
    """The headline figures of a run. `steps` is the number of training steps of the rank with most steps. In a run that
    only infers, it is the number of batches or calls, and `noun` is batch or call.

    `step_p50_ns` and `data_wait_frac` cover the averaged steps (no warm-up, no detailed window). Both are None without
    such steps.
    """

    state: RunState
    ranks: tuple[int, ...]
    steps: int
    step_p50_ns: float | None
    data_wait_frac: float | None
    is_recovered: bool = False
    """Whether the recording was cut off, and all data that it left is in the tables."""
    noun: str = "step"
    step_noise_ns: float | None = None
    step_mean_ns: float | None = None
    stands_still: str = ""
    """A sentence on how the job stands still while it records; empty while the job makes progress."""
    is_damaged: bool = False
    """Whether no rank's manifest is readable, so that the end of the training is not known, or the steps of one are not."""
    has_failed: bool = False
    """Whether an error ended a rank of the run."""
    step_range_ns: tuple[float, float] | None = None
    """The 10th and the 90th percentile of the averaged steps."""
    setup: Setup = Setup()

    @property
    def shown_state(self) -> ListState:
        return _name_state(self.state, self.has_failed)


@dataclass(frozen=True)
class RunEntry:
    """One line of the list of runs. `delta_frac` is the relative change of the median step since the run `previous_id`.

    `delta_is_clear` is true if the change exceeds the usual difference between runs of one script. `mean_delta_frac` is
    the relative change of the mean step, if this change is clear and in the other direction; else None. A run that was
    not read yet has the name of its folder, the time of its file, and no figures.
    """

    id: str
    path: Path
    manifest: RunManifest
    headline: Headline
    previous_id: str | None = None
    delta_frac: float | None = None
    delta_is_clear: bool = False
    is_read: bool = True
    mean_delta_frac: float | None = None
    attempts: int = 1
    """Number of starts of the run's job."""

    @property
    def name(self) -> str:
        return self.manifest.name or self.id

    @property
    def state(self) -> RunState:
        return self.headline.state

    @property
    def shown_state(self) -> ListState:
        return self.headline.shown_state


def read_headline(run: Run) -> Headline:
    """Read the headline figures of a run. Ranks whose steps cannot be read are left out.

    Raises RunNotFoundError, NewerSchemaError or TableBrokenError if the manifest of the run cannot be read.
    """
    ranks = run.ranks
    read = [steps for rank in ranks[:COUNTED_RANKS] if (steps := _read_steps(run, rank)) is not None]
    tells = any(steps.tells_waits for steps in read)
    durations = np.concatenate([steps.duration_ns for steps in read]) if read else np.empty(0, np.int64)
    total_ns, times = int(durations.sum()), summarize_durations(durations)
    states = _read_states(run, ranks)
    return Headline(
        state=choose_state(states),
        ranks=ranks,
        steps=max((steps.count for steps in read), default=0),
        step_p50_ns=times.p50 if times is not None else None,
        data_wait_frac=sum(steps.data_wait_ns for steps in read) / total_ns if total_ns and tells else None,
        is_recovered=_is_recovered(run, ranks),
        noun=next((steps.noun for steps in read if steps.noun != "step"), "step"),
        step_noise_ns=measure_noise(durations.astype(np.float64)),
        step_mean_ns=times.mean if times is not None else None,
        stands_still=say_stand(run, ranks),
        is_damaged=bool(ranks) and (not states or has_broken_steps(run, ranks)),
        has_failed=has_failed(run, ranks[:COUNTED_RANKS]),
        step_range_ns=_find_range(durations),
        setup=read_or(Setup(), lambda: _read_setup(run.rank().manifest)),
    )


def _find_range(durations_ns: npt.NDArray[np.int64]) -> tuple[float, float] | None:
    if not len(durations_ns):
        return None
    low, high = np.percentile(durations_ns, (10.0, 90.0)).tolist()
    return low, high


def _read_setup(manifest: RankManifest) -> Setup:
    checkout = manifest.facts.get("checkout")
    commit = checkout.get("commit") if isinstance(checkout, dict) else None
    is_known = isinstance(commit, str) and commit.isalnum() and len(commit) <= _LONGEST_NAME
    return Setup(
        ", ".join(dict.fromkeys(device.name for device in manifest.devices))[:_LONGEST_NAME],
        manifest.loaders[0].batch_size if manifest.loaders else None,
        str(commit) if is_known else "",
        is_known and isinstance(checkout, dict) and checkout.get("is_dirty") is True,
    )


def has_broken_steps(run: Run, ranks: Sequence[int]) -> bool:
    """Return whether the table `steps` of one of the ranks that are counted cannot be read."""
    read = [read_or(None, lambda rank: run.rank(rank).status("steps").state, rank) for rank in ranks[:COUNTED_RANKS]]
    return "broken" in read


def read_job_state(run: Run) -> tuple[ListState, bool]:
    """Return the state of a run as the list of runs shows it, and whether the run was recovered."""
    ranks = run.ranks
    state = choose_state(_read_states(run, ranks))
    return _name_state(state, has_failed(run, ranks[:COUNTED_RANKS])), _is_recovered(run, ranks)


def _name_state(state: RunState, has_failed: bool) -> ListState:
    return "failed" if has_failed and state == "complete" else state


def say_stand(run: Run, ranks: Sequence[int]) -> str:
    """Return a sentence on where a job that records stands still; "" if it makes progress."""
    found = find_standing([run.read_rank(rank) for rank in ranks])
    return describe_live_hang(found) if found is not None else ""


def _read_states(run: Run, ranks: Sequence[int]) -> set[RunState]:
    # A damaged manifest tells nothing of how the training ended.
    states = [read_or(None, lambda rank: run.rank(rank).state, rank) for rank in ranks[:COUNTED_RANKS]]
    return {state for state in states if state is not None}


def choose_state(states: Set[RunState]) -> RunState:
    """Return the worst of the states of the ranks; crashed if `states` is empty, because no rank can be read."""
    worst_first: tuple[RunState, ...] = ("crashed", "recording", "imported", "complete")
    return next((state for state in worst_first if state in states), "crashed")


def _is_recovered(run: Run, ranks: Sequence[int]) -> bool:
    def read() -> bool:
        cut_off = [rank for number in ranks[:COUNTED_RANKS] if (rank := run.rank(number)).state == "crashed"]
        return bool(cut_off) and all(rank.is_recovered for rank in cut_off)

    return read_or(False, read)


@dataclass(frozen=True)
class _Steps:
    """The steps of one rank: `count` is of all steps, durations and data wait are of the averaged steps only."""

    count: int
    duration_ns: npt.NDArray[np.int64]
    data_wait_ns: int
    noun: str
    tells_waits: bool


def _read_steps(run: Run, rank: int) -> _Steps | None:
    try:
        opened = run.rank(rank)
        rows = read_step_rows(opened, (*SELECTED_COLUMNS, "data_wait_ns"))
        tells = tells_waits(opened.manifest.is_trace, int(read_integers(train_steps(rows.steps), "data_wait_ns").sum()))
    except RunError:
        return None  # its pages say what is wrong with it; the list shows what the other ranks have
    selection = select_steps(rows.steps)
    wait = read_integers(train_steps(rows.steps), "data_wait_ns")
    kept = selection.kept
    return _Steps(len(selection.step), selection.duration_ns[kept], int(wait[kept].sum()), rows.noun, tells)
