"""The steps of a rank: the steps of the average, interruptions of the steps, and the functions that run in them. Rules,
sentences and pages on steps read these facts.

Times are ns. Times per step are means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from collector.format.phases import PHASE_NAMES
from profiler_server.diagnosis.limits.facts import DOMINANT_FRAC

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class NamedFunction:
    """A function and its share of the stack samples of a phase or stage. `low_frac` to `high_frac` is the 95 %
    interval.

    `caller` is the user's function that calls a library, empty for the user's own code. `file` and `line` are the place
    where the user's code was sampled most often. `is_own_line` means that the entry is a single line of the loop or of
    a data set's methods, with everything that it calls outside Python, and not a whole function.
    """

    function: str
    caller: str
    file: str
    line: int
    samples: int
    share_frac: float
    low_frac: float
    high_frac: float
    is_own_line: bool = False

    @property
    def place(self) -> str:
        return f"{self.file.rpartition('/')[2]}:{self.line}"

    @property
    def error_frac(self) -> float:
        return (self.high_frac - self.low_frac) / 2


@dataclass(frozen=True)
class Part:
    """The functions that ran in one phase or stage, the one with most samples first. `name` is the phase or stage,
    `samples` the number of all its stack samples."""

    name: str
    samples: int
    functions: tuple[NamedFunction, ...]

    @property
    def dominant(self) -> NamedFunction | None:
        """The function that takes most of the phase or stage; None if no function does."""
        first = self.functions[0] if self.functions else None
        return first if first is not None and first.share_frac >= DOMINANT_FRAC else None


@dataclass(frozen=True)
class Explained:
    """A phase of the mean step. `parts` are the ns per step that stages, lines and operators explain. `parts` and
    `rest_ns` sum to `whole_ns`.

    `function` takes most of `rest_ns` and is called at `place`; both are empty if unknown. `is_made_again` means
    that an object or an iterator is made there in each step."""

    phase: str
    whole_ns: float
    parts: Mapping[str, float]
    function: str = ""
    place: str = ""
    is_made_again: bool = False

    @property
    def rest_ns(self) -> float:
        return max(self.whole_ns - sum(self.parts.values()), 0.0)


@dataclass(frozen=True)
class FlameNode:
    """A function at one place in the call tree of stack samples. `samples` is the number of samples in it and all
    that it calls. `start` is the number of samples to its left in the picture; `depth` starts at 0. `is_own`: the
    function is the user's."""

    label: str
    place: str
    is_own: bool
    depth: int
    start: int
    samples: int


Kind = Literal["checkpoint", "validation", "between", "compile", "recompile", "range"]


@dataclass(frozen=True)
class Held:
    """A kind of interruption of the training thread. `reason` is PyTorch's reason for a compilation, otherwise ""."""

    kind: Kind
    name: str
    reason: str = ""

    @property
    def label(self) -> str:
        """A label in a few words: "checkpoint (torch.save)"."""
        if self.kind == "compile":
            return f"compilation of {self.name}"
        if self.kind == "recompile":
            return f"recompilation of {self.name}"
        if self.kind == "range":
            return f"range “{self.name}”"
        if self.kind == "between":
            return "time between epochs"
        return f"{self.kind} ({self.name})" if self.name else self.kind


@dataclass(frozen=True)
class Interruptions:
    """Interruptions of the training thread, in order of start. Each array has one value per interruption.

    `which` is the index of its kind in `held`; `depth` is how many other interruptions it lies in. Validation and
    the time between epochs lie between steps."""

    held: tuple[Held, ...]
    which: Ints
    start_ns: Ints
    duration_ns: Ints
    depth: Ints

    def of_kind(self, *kinds: Kind) -> Interruptions:
        chosen = np.array([held.kind in kinds for held in self.held], np.bool_)
        return self._take(chosen[self.which] if len(self.which) else np.zeros(0, np.bool_))

    def _take(self, rows: Mask) -> Interruptions:
        return Interruptions(self.held, self.which[rows], self.start_ns[rows], self.duration_ns[rows], self.depth[rows])


@dataclass(frozen=True)
class HeldSum:
    """How often and how long one kind of interruption held the training thread in the run. `total_ns` is the sum
    over the `count` interruptions, `longest_at_ns` the time at which the longest began."""

    held: Held
    count: int
    total_ns: int
    longest_ns: int
    longest_at_ns: int


NOTHING = Interruptions((), *(np.zeros(0, np.int64),) * 4)


def sum_interruptions(found: Interruptions) -> tuple[HeldSum, ...]:
    """Sum the interruptions by kind and name, longest total first. Ranges that the user marked are left out.

    A nested interruption counts in its own kind and in the time of the outer one. The `reason` is that of the
    longest interruption."""
    places: dict[tuple[Kind, str], list[int]] = {}
    for place, held in enumerate(found.held):
        if held.kind != "range":
            places.setdefault((held.kind, held.name), []).append(place)
    sums = [_sum_rows(found, np.flatnonzero(np.isin(found.which, same))) for same in places.values()]
    return tuple(sorted((entry for entry in sums if entry is not None), key=lambda entry: -entry.total_ns))


def _sum_rows(found: Interruptions, rows: Ints) -> HeldSum | None:
    if not len(rows):
        return None
    lengths = found.duration_ns[rows]
    longest = int(rows[np.argmax(lengths)])
    at_ns = int(found.start_ns[longest])
    return HeldSum(found.held[found.which[longest]], len(rows), int(lengths.sum()), int(lengths.max()), at_ns)


@dataclass(frozen=True)
class CompileEvents:
    """All compilation events of one kind in the run. `count` and `duration_ns` are totals, `functions` is the number
    of distinct functions. `function` has the most events, `reason` is the first line of the most frequent reason;
    both are empty without events."""

    count: int = 0
    duration_ns: int = 0
    functions: int = 0
    function: str = ""
    reason: str = ""


@dataclass(frozen=True)
class Logged:
    """The logging library that took most time. `calls` is the number of its calls in the run, `step_ns` its mean
    time per step, including calls between the steps. `longest_ns` is its longest call."""

    name: str
    calls: int
    step_ns: float
    longest_ns: int


@dataclass(frozen=True)
class Shift:
    """A lasting change of the step time. `at` is the index of the first step after the change, in the steps that were
    given. `before_ns` and `after_ns` are the median steps on both sides.

    A block of consecutive steps fits if its median is nearer to the median of its own side than to that of the other
    side. `held_frac` is the share of fitting blocks before or after the change, whichever share is smaller."""

    at: int
    before_ns: float
    after_ns: float
    held_frac: float

    @property
    def change_frac(self) -> float:
        return self.after_ns / self.before_ns - 1.0 if self.before_ns else 0.0


@dataclass(frozen=True)
class SlowConvolutions:
    """Convolutions for which no library has code: their share of the operators' time, and the share of their own time
    that float32 would save.
    """

    share_frac: float = 0.0
    saved_frac: float = 0.0


@dataclass(frozen=True)
class AnomalyWork:
    """The work per step of PyTorch's anomaly detection.

    `nodes` is the number of backward nodes; the forward keeps a traceback for each node. `checks_ns` is the time of the
    checks for NaN that follow the nodes.
    """

    nodes: float
    checks_ns: float


@dataclass(frozen=True)
class ModelCalls:
    """The calls of a module, or the batches of a loader, at the line `place`, in the `looks` steps that were examined.
    Counts and times are totals over these steps.

    `padded` of the `calls` had rows that are filled up to `width`, which is 0 for several widths. `rows` is the
    number of rows of a padded call, 0 if it differs. `useful_frac` is the share of a call that is not padding, and
    `longest_frac` is this share of its longest row; both are means over all calls. `positions` is
    the sum of rows × width over all calls, 0 if unknown. `again` calls gave the result of
    an earlier call in the same step, in `again_ns`. Of the `compared` rows of calls without gradients, `known` rows
    had occurred in an earlier examined step, with the same result, in `known_ns`. `wide_fracs` are the shares of
    forward and backward that grow with the width and with the square of the width, None if unknown. `tokens` are the
    positions of batches whose tensors have known names, in `token_rows` rows; `real` are no padding, and `trained`
    count in the loss, -1 if unknown."""

    model: str
    place: str
    looks: int
    calls: int
    padded: int = 0
    useful_frac: float = 1.0
    longest_frac: float = 1.0
    positions: int = 0
    width: int = 0
    rows: int = 0
    again: int = 0
    again_ns: int = 0
    compared: int = 0
    known: int = 0
    known_ns: int = 0
    tokens: int = 0
    token_rows: int = 0
    real: int = 0
    trained: int = -1
    wide_fracs: tuple[float, float] | None = None


@dataclass(frozen=True)
class UnusedGradients:
    """Parameters whose gradients no update used: `parameters` numbers, of which an optimizer has `held`. `updated` is
    the number of all updated parameters.

    `nodes` are ranges of backward nodes that computed only such gradients, in the steps from `step` on. A range has the
    first and last number, how often the nodes ran before, and 2 for whole nodes or 1 for a part of them.
    `backward_frac` is the share of these nodes in the time of the backward, None if no detailed window shows it.
    """

    parameters: int
    held: int
    updated: int
    step: int = 0
    nodes: tuple[tuple[int, int, int, int], ...] = ()
    backward_frac: float | None = None


@dataclass(frozen=True)
class Kinds:
    """Kinds of work that depend on settings, as shares of the steps that torch.profiler recorded; 0 without such work.

    `convolutions_frac` is for convolutions of images and volumes, with gradients. `has_channels_last` is their memory
    format, None if unknown. `scores_frac` is work on matrices of attention scores that lie in memory. `is_fallback`
    means that `scaled_dot_product_attention` itself made these matrices, `drops_scores` that dropout works on them.

    `lookups_frac` is the backward of embeddings with gradients of all rows; a lookup reads at most `rows_frac` of these
    rows. The tables have `table_parameters` numbers; tables of the same shape count once. `pointwise_calls` is the
    number of small elementwise operators in the backward of a step. `large_frac` is the share of operators that are
    long enough for several threads, None if unknown. `differentiates_twice` means that a backward runs through a
    backward. `factorises` means that a step factorises or inverts matrices, which may need double precision.
    `slow_products_frac` is for large float32 products on a CPU that run far below its usual rate. `kept_frac` is for
    gradients that are filled with zeros and added to, instead of being made anew.
    """

    convolutions_frac: float = 0.0
    has_channels_last: bool | None = None
    scores_frac: float = 0.0
    is_fallback: bool = False
    drops_scores: bool = False
    lookups_frac: float = 0.0
    rows_frac: float = 1.0
    table_parameters: int = 0
    pointwise_calls: float = 0.0
    large_frac: float | None = None
    differentiates_twice: bool = False
    factorises: bool = False
    slow_products_frac: float = 0.0
    kept_frac: float = 0.0

    def find_dense_frac(self, update_frac: float, parameters: float) -> float:
        """Return the share of the step spent on gradients of whole embedding tables, and on updating these tables.

        `update_frac` is the share of the step for the update of all `parameters`.
        """
        return self.lookups_frac + update_frac * min(self.table_parameters / max(parameters, 1), 1.0)


@dataclass(frozen=True)
class SampledShare:
    """A share of `samples` stack samples. The true share lies between `low_frac` and `high_frac` with 95 %
    certainty."""

    samples: int
    share_frac: float
    low_frac: float
    high_frac: float


@dataclass(frozen=True)
class Sampled:
    """The functions that ran when stacks were sampled: `phases` maps one or more phases of the step together, `stages`
    one or more stages of the loader for which the steps wait, to their functions.

    `tracebacks` is the share of the forward that anomaly detection spends on tracebacks, None with too few samples."""

    phases: Mapping[tuple[str, ...], Part]
    stages: Mapping[tuple[str, ...], Part]
    tracebacks: SampledShare | None = None


@dataclass(frozen=True)
class ChosenSteps:
    """The training steps as equal-length arrays in time order, with a mask for each kind of step.

    `kept` are the steady steps, which are the steps in the average. `regular` are the steady steps without the first
    step of each epoch."""

    step: Ints
    duration_ns: Ints
    warm_up: Mask
    first_of_epoch: Mask
    kept: Mask
    regular: Mask


def read_column(rows: pa.Table, name: str) -> Ints:
    """Return a column of integers or flags as int64, null as 0."""
    values = rows.column(name).cast(pa.int64())
    return np.asarray((values.fill_null(0) if values.null_count else values).to_numpy(), np.int64)


@dataclass(frozen=True)
class Steps:
    """The training steps, and the means over the steady steps.

    `rows` are the training steps, one for each entry of `selection`; `other_rows` are all other rows of the table, such
    as evaluation. `mean_ns` and `phases_ns` are the mean step and its phases. `regular_phases_ns` leave out the first
    steps of epochs. `compiles` has the compilation events by kind. `logged` is None if no logging library was timed."""

    rows: pa.Table
    other_rows: pa.Table
    selection: ChosenSteps
    mean_ns: float
    phases_ns: Mapping[str, float]
    regular_phases_ns: Mapping[str, float]
    interruptions: Interruptions
    compiles: Mapping[str, CompileEvents]
    logged: Logged | None = None
    noun: str = "step"
    """The noun for a step: batch if the run only infers."""
    micro_batches: int = 1
    """Batches whose gradients the usual step accumulates."""
    slow_convolutions: SlowConvolutions = field(default_factory=SlowConvolutions)
    kinds: Kinds = field(default_factory=Kinds)
    operator_fracs: Mapping[str, float] = field(default_factory=dict)
    """Share of each phase spent in operators, from the detailed steps; empty without any."""
    stalled: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    """Indices of the regular steps that are much longer than usual."""
    stall_cause: str = ""
    """The interruption that held most of the stalled steps, "" if none did."""
    shift: Shift | None = None
    """Where the regular steps became longer or shorter for good, None if they did not."""

    @property
    def steady(self) -> int:
        """The number of regular steps, which are the steady steps without the first step of each epoch."""
        return int(self.selection.regular.sum())

    def share(self, *names: str) -> float:
        """Return the share of the mean step that the phases `names` take together."""
        return sum(self.phases_ns[name] for name in names) / self.mean_ns if self.mean_ns else 0.0

    def find_growth(self, before: Ints, after: Ints) -> dict[str, float]:
        """Return by how many ns the median of each phase grows, from the steps with the indices `before` to those
        with the indices `after` in `rows`."""
        values = {name: read_column(self.rows, f"{name}_ns") for name in PHASE_NAMES}
        return {name: float(np.median(times[after]) - np.median(times[before])) for name, times in values.items()}


def count_parameters(facts: Mapping[str, Any]) -> tuple[int, int]:
    """Return the number of trained float64 parameters, and the number of all trained parameters; 0, 0 if not recorded."""
    double = whole = 0
    optimizers = facts.get("optimizers")
    for entry in optimizers if isinstance(optimizers, list) else ():
        dtypes = entry.get("dtypes") if isinstance(entry, Mapping) else None
        for name, count in dtypes.items() if isinstance(dtypes, Mapping) else ():
            if isinstance(count, int) and not isinstance(count, bool):
                whole += max(count, 0)
                double += max(count, 0) if name == "float64" else 0
    return double, whole
