"""Select the steady steps, which averages cover, and summarise their times and phases, for every reader alike.

Evaluation batches are summed separately. In an inference run, they take the place of steps.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from collector.format.arrays import encode_texts, from_numbers, from_texts, to_integers
from collector.format.intervals import Floats, Ints, Mask
from collector.format.phases import PHASE_NAMES
from collector.format.schema.wording import form_plural, format_number_of

WARM_UP_MIN_STEPS = 10
"""With fewer training steps nothing is left out as warm-up: too few to distinguish a warm-up from chance."""
WARM_UP_MAX_SHARE = 0.2
WARM_UP_RATIO = 1.25
"""An early step is warm-up if the step, or either of the next two, takes this many times the median and longer than 95
% of the later steps. So alternating short and long steps are no warm-up."""

Reason = Literal["warm-up", "standstill", "detailed windows"]
Noun = Literal["step", "batch", "call"]
NOUN_COLUMNS = ("fetches", "markers")
"""The columns of `steps` from which `StepRows.noun` tells a batch of inference from a call of the model."""
_JUDGED = b"stepscope.warm_up_steps"
_STOOD = b"stepscope.standstills"
_READING = b"stepscope.reading"

SELECTED_COLUMNS = ("kind", "step", "start_ns", "duration_ns", "batch", "loader_start_ns", "detailed")
"""The columns of `steps` that `select_steps` reads."""


PERCENTILES: dict[str, float] = {"p50": 50.0, "p90": 90.0, "p95": 95.0, "p97": 97.0, "p99": 99.0, "p999": 99.9}
"""Field of a distribution -> percentile in percent; the same set wherever percentiles are shown."""
FEWEST_RANKED = 20
"""The least number of values for percentiles above the median: with fewer, the 95th lies between the two largest."""
PERCENTILE_LABELS = tuple(f"p{share:g}" for share in PERCENTILES.values())


@dataclass(frozen=True)
class Distribution:
    """The distribution of `count` times in ns. Percentiles are interpolated linearly; `std` is the population's.

    Percentiles above the median are None for fewer than `FEWEST_RANKED` times.
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
        """Return why percentiles above the median are missing, "" if they are there."""
        if self.count >= FEWEST_RANKED:
            return ""
        covers = "the average covers one" if self.count == 1 else f"the average covers {self.count}"
        return f"Percentiles above the median need {FEWEST_RANKED} {form_plural(noun)}; {covers}."


@dataclass(frozen=True)
class StepSummary:
    """A summary of training steps. `count` and the numbers of the `first` and `last` step are of all training steps;
    `duration_ns` is the distribution over the steady steps. Without steps, all but `count` and `left_out` are None."""

    count: int
    first: int | None
    last: int | None
    left_out: tuple[LeftOut, ...]
    duration_ns: Distribution | None

    @property
    def excluded(self) -> tuple[int, ...]:
        return tuple(sorted(int(number) for group in self.left_out for number in group.steps))


@dataclass(frozen=True)
class PhaseShare:
    """One phase of the mean step. Over all phases, the means sum to the mean step, and the shares of it to 1."""

    name: str
    mean_ns: float
    share_frac: float


@dataclass(frozen=True)
class LeftOut:
    reason: Reason
    steps: Ints


@dataclass(frozen=True)
class StepSelection:
    """Training steps in time order, as arrays of equal length: number, duration, and masks that label steps.

    `kept` are the steady steps: not warm-up, without a standstill (`stood`), and without the cost of a detailed window.
    `detailed` steps carry this cost: they ran in the window, or while the recorder read the window's trace.
    `regular` are the kept steps that are not the first of an epoch, whose cost is amortised; the noise and the loader
    model use `regular`.
    """

    step: Ints
    duration_ns: Ints
    warm_up: Mask
    detailed: Mask
    first_of_epoch: Mask
    kept: Mask
    regular: Mask
    stood: Mask

    @property
    def left_out(self) -> tuple[LeftOut, ...]:
        kinds: tuple[tuple[Reason, Mask], ...] = (
            ("warm-up", self.warm_up & ~self.kept),
            ("standstill", self.stood & ~self.warm_up & ~self.kept),
            ("detailed windows", self.detailed & ~self.stood & ~self.warm_up & ~self.kept),
        )
        return tuple(LeftOut(reason, self.step[steps]) for reason, steps in kinds if steps.any())


def select_steps(steps: pa.Table) -> StepSelection:
    """Return the labelled training steps. Those in windows are kept only if almost all are, as in a trace."""
    train = train_steps(steps)
    duration = read_integers(train, "duration_ns")
    detailed = read_integers(train, "detailed") > 0
    reading = _find_reading(train)
    judged = (steps.schema.metadata or {}).get(_JUDGED)
    warm_up = _find_warm_up(duration) if judged is None else np.arange(len(duration)) < int(judged)
    first = _find_first_of_epoch(train)
    stood = find_stood(train)
    if (~warm_up & ~detailed & ~reading & ~stood).sum() >= WARM_UP_MIN_STEPS:
        detailed = detailed | reading
    kept = ~warm_up & ~detailed & ~stood
    if kept.sum() < min(WARM_UP_MIN_STEPS, int(detailed.sum())):
        kept = ~warm_up & ~stood
    if not kept.any():  # a choice of standstills only
        kept = ~warm_up
    regular = kept & ~first
    if 2 * regular.sum() < kept.sum():  # epochs of one or two steps: what comes at each start is the usual step
        regular = kept
    return StepSelection(read_integers(train, "step"), duration, warm_up, detailed, first, kept, regular, stood)


def explain_left_out(left_out: Iterable[LeftOut], noun: str = "step") -> str:
    """Return text such as `3 steps left out: warm-up, detailed windows`, "" if no step is left out of the average."""
    groups = list(left_out)
    reasons = ", ".join(dict.fromkeys(group.reason for group in groups))
    count = sum(len(group.steps) for group in groups)
    return f"{format_number_of(count, noun)} left out: {reasons}" if count else ""


def explain_average(selections: Iterable[StepSelection], noun: str = "step") -> str:
    """Return text on what the mean over all selections covers: how many steps are left out, or `every step counted`."""
    left_out = [group for selection in selections for group in selection.left_out]
    return explain_left_out(left_out, noun) or f"every {noun} counted"


def mark_judged(steps: pa.Table, warm_up: int) -> pa.Table:
    """Return a section of a run's steps. Its metadata has `warm_up`, the number of its steps that are warm-up in the
    whole run.

    The section alone does not show this number: its first steps may be slow without being the first of the run.
    """
    return steps.replace_schema_metadata({**(steps.schema.metadata or {}), _JUDGED: str(warm_up).encode()})


def mark_stood(steps: pa.Table, for_ns: Mapping[int, int]) -> pa.Table:
    """Return the steps with metadata on standstills, which `select_steps` reads.

    `for_ns` maps the number of a step to the duration of its standstill in ns. The step is left out of averages only if
    it takes at least this duration.
    """
    told = json.dumps({str(number): length for number, length in for_ns.items()})
    return steps.replace_schema_metadata({**(steps.schema.metadata or {}), _STOOD: told.encode()})


def mark_reading(steps: pa.Table, spans: Iterable[tuple[int, int]]) -> pa.Table:
    """Return the steps with metadata on when the recorder read the traces of detailed windows.

    `spans` are pairs of start and end in ns since the epoch. A step that runs during such a span takes up to three
    times as long if the training uses all processors.
    """
    return steps.replace_schema_metadata({**(steps.schema.metadata or {}), _READING: json.dumps(list(spans)).encode()})


def train_steps(steps: pa.Table) -> pa.Table:
    is_train = is_kind(steps, "train")
    # A long table is not copied where that changes nothing: pages ask for its training steps many times.
    return steps if pc.all(is_train).as_py() else steps.filter(is_train)


def tells_waits(is_trace: bool, data_wait_ns: int) -> bool:
    """Return whether `data_wait_ns` is measured: 0 in a trace means that it holds no call of a DataLoader."""
    return data_wait_ns > 0 or not is_trace


def sum_recorded(steps: pa.Table) -> int:
    return int(read_integers(steps, "duration_ns").sum())


def read_integers(table: pa.Table, name: str, absent: int = 0) -> Ints:
    """Return a column of integers or flags as int64. Null becomes `absent`."""
    values = table.column(name)
    if values.null_count:
        values = values.cast(pa.int64()).fill_null(from_numbers(np.array([absent], np.int64))[0])
    elif values.type != pa.int64():
        values = values.cast(pa.int64())
    return to_integers(values)


def measure_between(every: pa.Table) -> Ints:
    """Return for each training step the ns of rows of other kinds since the previous training step; 0 for the first."""
    is_train = np.asarray(is_kind(every, "train").to_numpy(zero_copy_only=False), np.bool_)
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


def find_stood(train: pa.Table) -> Mask:
    """Return a mask of the training steps that `mark_stood` marked as standstills."""
    told = json.loads((train.schema.metadata or {}).get(_STOOD, b"{}"))
    step, duration = read_integers(train, "step"), read_integers(train, "duration_ns")
    found = np.zeros(train.num_rows, np.bool_)
    for number, for_ns in told.items():
        found |= (step == int(number)) & (duration >= for_ns)
    return found


def _find_reading(train: pa.Table) -> Mask:
    """Return a mask of the training steps during which the recorder read the trace of a window."""
    spans = json.loads((train.schema.metadata or {}).get(_READING, b"[]"))
    found = np.zeros(train.num_rows, np.bool_)
    if spans:
        starts = read_integers(train, "start_ns")
        ends = starts + read_integers(train, "duration_ns")
        for start, end in spans:
            found |= (starts < end) & (ends > start)
    return found


def _find_first_of_epoch(train: pa.Table) -> Mask:
    begins = read_integers(train, "batch", -1) == 0
    opens = read_integers(train, "loader_start_ns") > 0
    found: Mask = begins | opens
    return found


def summarize_steps(steps: pa.Table) -> StepSummary:
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
    """Return the phases of the mean steady step; empty if there are no training steps."""
    return share_phases(train_steps(steps).filter(pa.array(select_steps(steps).kept)))


def share_phases(rows: pa.Table) -> tuple[PhaseShare, ...]:
    """Return the phases of the mean over all given rows of `steps`; empty if there are no rows."""
    count = rows.num_rows
    if not count:
        return ()
    sums = {name: int(read_integers(rows, f"{name}_ns").sum()) for name in PHASE_NAMES}
    whole = sum(sums.values())
    return tuple(PhaseShare(name, value / count, value / whole if whole else 0.0) for name, value in sums.items())


def find_stall_limit(durations: Ints | Floats) -> float:
    """Return the ns of a stalled step: 1.5 medians, or the median plus eight robust deviations if more."""
    middle = float(np.median(durations))
    spread = 1.4826 * float(np.median(np.abs(durations - middle)))
    return middle + max(0.5 * middle, 8.0 * spread)


_FIRST_BATCH = b"stepscope.first_batch"


@dataclass(frozen=True)
class StepRows:
    """The rows of a rank's `steps` table. `every` has all recorded rows; `steps` is for analyses of training steps.

    In a training run, `steps` is the whole table, too. In an inference run (`infers`), it holds the evaluation batches
    as training steps, numbered from 1.
    """

    every: pa.Table
    steps: pa.Table
    infers: bool

    @property
    def noun(self) -> Noun:
        """The noun for a row of `steps` on pages. In an inference run a row is a batch if a loader or the script makes
        batches, else a call of the model."""
        if not self.infers:
            return "step"
        told = (self.steps[name] for name in NOUN_COLUMNS if name in self.steps.column_names)
        return "batch" if any(pc.max(column.cast(pa.int64())).as_py() for column in told) else "call"


@dataclass(frozen=True)
class EvaluationSummary:
    """All evaluation batches of a rank. `total_ns` is the sum of their times, `share_frac` its share of all recorded
    time. `duration_ns` is the distribution of the times of single batches, `phases` are those of the mean batch.
    """

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
    """Return the evaluation batches as training steps, numbered from 1 or as `mark_first_batch` says."""
    batches = steps.filter(is_kind(steps, "eval"))
    kinds = encode_texts(["train"] * batches.num_rows)
    first = int((steps.schema.metadata or {}).get(_FIRST_BATCH, 1))
    numbers = from_numbers(np.arange(first, first + batches.num_rows, dtype=np.int64))
    numbered = batches.set_column(batches.schema.get_field_index("step"), "step", numbers)
    return numbered.set_column(batches.schema.get_field_index("kind"), "kind", kinds)


def mark_first_batch(steps: pa.Table, number: int) -> pa.Table:
    """Return a section of an inference run's rows, marked with the number of its first batch in the whole run."""
    return steps.replace_schema_metadata({**(steps.schema.metadata or {}), _FIRST_BATCH: str(number).encode()})


def count_as_steps(every: pa.Table) -> StepRows:
    """Return the rows of a `steps` table for analyses: in an inference run, evaluation batches count as steps."""
    if has_training(every):
        return StepRows(every, every, infers=False)
    batches = number_batches(every)
    return StepRows(every, batches, infers=batches.num_rows > 0)


def is_kind(rows: pa.Table, kind: str) -> pa.ChunkedArray:
    return pc.equal(rows["kind"].cast(pa.string()), from_texts([kind])[0])


def has_training(steps: pa.Table) -> bool:
    """Return whether the run has training steps; a run with evaluation batches only is an inference run."""
    return bool(pc.any(is_kind(steps, "train")).as_py())
