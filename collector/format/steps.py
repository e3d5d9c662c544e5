"""Training steps: which of them an average covers, their distribution, and the phases they are made of.

Evaluation batches are summed apart, and stand in the place of steps where a run only infers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from collector.format.intervals import Floats, Ints, Mask
from collector.format.phases import PHASE_NAMES
from collector.format.schema.wording import form_plural, format_number_of

WARM_UP_MIN_STEPS = 10
"""A run or trace of fewer training steps is averaged whole: too short to tell a warm-up from chance."""
WARM_UP_MAX_SHARE = 0.2
WARM_UP_RATIO = 1.25
"""A step at the start belongs to the warm-up while it, or one of the two after it, is so many times the median step and
longer than all but a twentieth of the later ones: steps that are short and long by turns are no warm-up."""

Reason = Literal["warm-up", "standstill", "detailed windows", "probe"]
_JUDGED = b"stepscope.warm_up_steps"
_STOOD = b"stepscope.standstills"

SELECTED_COLUMNS = ("kind", "step", "duration_ns", "batch", "loader_start_ns", "detailed", "probed")
"""What `select_steps` reads of a `steps` table."""


PERCENTILES: dict[str, float] = {"p50": 50.0, "p90": 90.0, "p95": 95.0, "p97": 97.0, "p99": 99.0, "p999": 99.9}
"""Field of a distribution -> share in percent, as everything that shows percentiles has them."""
FEWEST_RANKED = 20
"""Values from which percentiles above the median are shown: below it the 95th lies between the two largest."""
PERCENTILE_LABELS = tuple(f"p{share:g}" for share in PERCENTILES.values())


@dataclass(frozen=True)
class Distribution:
    """Of `count` times in ns. Percentiles interpolate linearly between closest ranks (numpy's default).

    Those above the median are None for fewer than `FEWEST_RANKED` times.
    """

    count: int
    mean: float
    std: float
    min: int
    p50: float
    p90: float | None
    p95: float | None
    p97: float | None
    p99: float | None
    p999: float | None
    max: int

    def list_percentiles(self) -> tuple[tuple[str, float | None], ...]:
        """Return the percentiles with their labels: p50, …, p99.9."""
        return tuple(zip(PERCENTILE_LABELS, (getattr(self, name) for name in PERCENTILES), strict=True))

    def explain_unranked(self, noun: str = "step") -> str:
        """Say why there are no percentiles above the median, "" where there are."""
        if self.count >= FEWEST_RANKED:
            return ""
        covers = "the average covers one" if self.count == 1 else f"the average covers {self.count}"
        return f"Percentiles above the median need {FEWEST_RANKED} {form_plural(noun)}; {covers}."


@dataclass(frozen=True)
class StepSummary:
    """`count`, `first` and `last` are of all training steps, `duration_ns` of those that the average covers."""

    count: int
    first: int | None
    last: int | None
    left_out: tuple[LeftOut, ...]
    duration_ns: Distribution | None

    @property
    def excluded(self) -> tuple[int, ...]:
        """The steps that the average leaves out, in order."""
        return tuple(sorted(int(number) for group in self.left_out for number in group.steps))


@dataclass(frozen=True)
class PhaseShare:
    """One part of the mean step. The means sum to the mean step, the shares to 1."""

    name: str
    mean_ns: float
    share_frac: float


@dataclass(frozen=True)
class LeftOut:
    """The numbers of steps that an average does not cover for one reason."""

    reason: Reason
    steps: Ints


@dataclass(frozen=True)
class StepSelection:
    """Training steps as arrays of equal length in time order, and what each is.

    `kept` are those that an average covers: neither warm-up nor inside a detailed window, nor part of the probe, and the
    job did not stand still (`stood`) in them. `regular` leaves out the amortised events too (first of an epoch): what the noise and the loader model are made from.
    """

    step: Ints
    duration_ns: Ints
    warm_up: Mask
    detailed: Mask
    first_of_epoch: Mask
    kept: Mask
    regular: Mask
    probed: Mask
    stood: Mask

    @property
    def left_out(self) -> tuple[LeftOut, ...]:
        """The steps that an average does not cover, by why."""
        kinds: tuple[tuple[Reason, Mask], ...] = (
            ("warm-up", self.warm_up & ~self.kept),
            ("standstill", self.stood & ~self.warm_up & ~self.kept),
            ("detailed windows", self.detailed & ~self.stood & ~self.warm_up & ~self.kept),
            ("probe", self.probed & ~self.detailed & ~self.stood & ~self.warm_up & ~self.kept),
        )
        return tuple(LeftOut(reason, self.step[steps]) for reason, steps in kinds if steps.any())


def select_steps(steps: pa.Table) -> StepSelection:
    """Label the training steps of a `steps` table.

    Steps in a detailed window are kept only where nearly nothing else was recorded, as in an imported trace.
    """
    train = train_steps(steps)
    duration = read_integers(train, "duration_ns")
    detailed = read_integers(train, "detailed") > 0
    judged = (steps.schema.metadata or {}).get(_JUDGED)
    warm_up = _find_warm_up(duration) if judged is None else np.arange(len(duration)) < int(judged)
    first = _find_first_of_epoch(train)
    probed = _find_probed(train)
    stood = find_stood(train)
    kept = ~warm_up & ~detailed & ~probed & ~stood
    if kept.sum() < min(WARM_UP_MIN_STEPS, int((detailed & ~probed).sum())):
        kept = ~warm_up & ~probed & ~stood
    if not kept.any():  # a choice of probed steps only
        kept = ~warm_up
    regular = kept & ~first
    if 2 * regular.sum() < kept.sum():  # epochs of one or two steps: what comes at each start is the usual step
        regular = kept
    return StepSelection(read_integers(train, "step"), duration, warm_up, detailed, first, kept, regular, probed, stood)


def explain_left_out(left_out: Iterable[LeftOut], noun: str = "step") -> str:
    """Return `3 steps left out: warm-up, detailed windows`, empty where the average covers every step."""
    groups = list(left_out)
    reasons = ", ".join(dict.fromkeys(group.reason for group in groups))
    count = sum(len(group.steps) for group in groups)
    return f"{format_number_of(count, noun)} left out: {reasons}" if count else ""


def explain_average(selections: Iterable[StepSelection], noun: str = "step") -> str:
    """Say which steps the means over all of them cover: how many are left out, or `every step counted`."""
    left_out = [group for selection in selections for group in selection.left_out]
    return explain_left_out(left_out, noun) or f"every {noun} counted"


def mark_judged(steps: pa.Table, warm_up: int) -> pa.Table:
    """Return part of a run's steps, of which the first `warm_up` training steps are its warm-up as the whole run tells.

    A part by itself cannot tell: its first steps may be slow without being the first of the run.
    """
    return steps.replace_schema_metadata({**(steps.schema.metadata or {}), _JUDGED: str(warm_up).encode()})


def mark_stood(steps: pa.Table, for_ns: Mapping[int, int]) -> pa.Table:
    """Return a run's steps, in some of which, by number, the job stood still for so long: the table does not tell."""
    told = json.dumps({str(number): length for number, length in for_ns.items()})
    return steps.replace_schema_metadata({**(steps.schema.metadata or {}), _STOOD: told.encode()})


def train_steps(steps: pa.Table) -> pa.Table:
    """Return the rows of a `steps` table that are training steps."""
    is_train = pc.equal(steps.column("kind").combine_chunks().cast(pa.string()), "train")
    # A long table is not copied where that changes nothing: pages ask for its training steps many times.
    return steps if pc.all(is_train).as_py() else steps.filter(is_train)


def tells_waits(is_trace: bool, data_wait_ns: int) -> bool:
    """Say whether steps that wait so long for data in all tell how long they wait.

    A trace without any such time has no call of a DataLoader: what its steps wait for their input counts as another phase.
    """
    return data_wait_ns > 0 or not is_trace


def sum_recorded(steps: pa.Table) -> int:
    """Return the recorded time in ns: that of all rows, whatever their kind."""
    return int(read_integers(steps, "duration_ns").sum())


def read_integers(table: pa.Table, name: str, absent: int = 0) -> Ints:
    """Return a column of integers or flags as int64, null as `absent`: its reader names that value where null can occur."""
    values = table.column(name)
    if values.null_count:
        values = values.cast(pa.int64()).fill_null(absent)
    elif values.type != pa.int64():
        values = values.cast(pa.int64())
    return np.asarray(values.to_numpy(), dtype=np.int64)


def measure_between(every: pa.Table) -> Ints:
    """Return of each training step of a `steps` table how long the rows take that lie between it and the one before."""
    is_train = np.asarray(pc.equal(every["kind"].cast(pa.string()), "train").to_numpy(zero_copy_only=False), np.bool_)
    before = np.cumsum(np.where(is_train, 0, read_integers(every, "duration_ns")))[is_train]
    found: Ints = np.diff(before, prepend=before[:1])
    return found


def _find_warm_up(duration: Ints) -> Mask:
    count = len(duration)
    mask = np.zeros(count, dtype=bool)
    if count < WARM_UP_MIN_STEPS:
        return mask
    limit = min(int(count * WARM_UP_MAX_SHARE), 200)
    middle, high = np.percentile(duration[count // 3 :], (50, 95))
    slow = duration[:limit] > max(WARM_UP_RATIO * middle, high)
    length = 0
    while length < limit and slow[length : length + 3].any():
        length += 1
    mask[:length] = True
    return mask


def _find_probed(train: pa.Table) -> Mask:
    if "probed" not in train.column_names:
        return np.zeros(train.num_rows, np.bool_)
    return read_integers(train, "probed", absent=0) > 0


def find_stood(train: pa.Table) -> Mask:
    """Say of training steps whether the job stood still in them, as `mark_stood` was told."""
    told = json.loads((train.schema.metadata or {}).get(_STOOD, b"{}"))
    step, duration = read_integers(train, "step"), read_integers(train, "duration_ns")
    found = np.zeros(train.num_rows, np.bool_)
    for number, for_ns in told.items():
        found |= (step == int(number)) & (duration >= for_ns)
    return found


def _find_first_of_epoch(train: pa.Table) -> Mask:
    begins = np.asarray(pc.fill_null(pc.equal(train["batch"], 0), False).to_numpy(), dtype=np.bool_)
    return np.logical_or(begins, read_integers(train, "loader_start_ns") > 0)


def summarize_steps(steps: pa.Table) -> StepSummary:
    """Summarise a `steps` table: `count`, `first` and `last` of all training steps, `duration_ns` of those kept."""
    selection = select_steps(steps)
    if not len(selection.step):
        return StepSummary(0, None, None, (), None)
    numbers = selection.step
    durations = selection.duration_ns[selection.kept]
    return StepSummary(
        len(numbers), int(numbers[0]), int(numbers[-1]), selection.left_out, summarize_durations(durations)
    )


def summarize_durations(values: Ints) -> Distribution | None:
    """Return the distribution of times in ns; percentiles interpolate linearly; None for no values."""
    if not len(values):
        return None
    shares: list[float | None] = np.percentile(values, tuple(PERCENTILES.values())).tolist()
    if len(values) < FEWEST_RANKED:
        shares[1:] = [None] * (len(shares) - 1)
    return Distribution(
        count=len(values),
        mean=int(values.sum()) / len(values),
        std=float(values.std()),
        min=int(values.min()),
        max=int(values.max()),
        **dict(zip(PERCENTILES, shares, strict=True)),  # type: ignore[arg-type]  # only the median is never None
    )


def summarize_phases(steps: pa.Table) -> tuple[PhaseShare, ...]:
    """Return the parts of the mean step, over the steps that `summarize_steps` averages; empty if there are none."""
    return share_phases(train_steps(steps).filter(pa.array(select_steps(steps).kept)))


def share_phases(rows: pa.Table) -> tuple[PhaseShare, ...]:
    """Return the parts of the mean row, over all of the rows; empty if there are none."""
    count = rows.num_rows
    if not count:
        return ()
    sums = {name: int(read_integers(rows, f"{name}_ns").sum()) for name in PHASE_NAMES}
    whole = sum(sums.values())
    return tuple(PhaseShare(name, value / count, value / whole if whole else 0.0) for name, value in sums.items())


def find_stall_limit(durations: Ints | Floats) -> float:
    """Return the step time in ns from which a step is stalled: half again the median, and eight robust deviations."""
    middle = float(np.median(durations))
    spread = 1.4826 * float(np.median(np.abs(durations - middle)))
    return middle + max(0.5 * middle, 8.0 * spread)


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


def count_as_steps(every: pa.Table) -> StepRows:
    """Tell what of a `steps` table counts as its steps."""
    if has_training(every):
        return StepRows(every, every, infers=False)
    batches = number_batches(every)
    return StepRows(every, batches, infers=batches.num_rows > 0)


def has_training(steps: pa.Table) -> bool:
    """Say whether the run trained; a run of evaluation batches alone is an inference run."""
    return bool(pc.any(pc.equal(steps["kind"].cast(pa.string()), "train")).as_py())
