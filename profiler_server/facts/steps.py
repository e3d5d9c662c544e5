"""The steps of a rank: which of them count, what holds them up, and the functions that they run in.

Times are ns; `*_ns` per step are means.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from collector.format.phases import PHASE_NAMES
from profiler_server.diagnosis.limits.facts import DOMINANT_FRAC

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class NamedFunction:
    """A function and its share of the samples of a phase or stage; `low_frac` to `high_frac` holds it in 95 of 100 cases.

    `caller` is the function of the user's that calls a library, empty for code of the user's own. `file` and `line` are
    where the user's code was seen most often. `is_own_line` says that the line itself is meant, with what it calls that is
    not written in Python: of the loop and of methods of a data set each line counts for itself.
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
    """What ran in a phase or a stage: how often it was sampled, and what is named of it, the longest first."""

    name: str
    samples: int
    functions: tuple[NamedFunction, ...]

    @property
    def dominant(self) -> NamedFunction | None:
        """The function that takes most of it, if one does."""
        first = self.functions[0] if self.functions else None
        return first if first is not None and first.share_frac >= DOMINANT_FRAC else None


@dataclass(frozen=True)
class OwnWork:
    """The share of a phase's samples in the user's own code, outside of modules and calls of torch, with the bounds that hold
    it in 95 of 100 cases. `functions` are what is named of it, with their shares of the work, the largest first."""

    samples: int
    share_frac: float
    low_frac: float
    high_frac: float
    functions: tuple[NamedFunction, ...]


Kind = Literal["checkpoint", "validation", "between", "compile", "recompile", "range"]


@dataclass(frozen=True)
class Held:
    """One thing that holds the training thread; `reason` is PyTorch's for a compilation, "" else."""

    kind: Kind
    name: str
    reason: str = ""

    @property
    def label(self) -> str:
        """What it is in a few words: "checkpoint (torch.save)"."""
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
    """Each row is one time that something of `held` held the thread: `which` is its place there, `row` that in its table.

    `depth` is how deep a range was nested; rows are in order of their start. Passes of validation lie between steps, and
    so does what is between epochs.
    """

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
    """How often something held the thread and for how long; `longest_at_ns` is when it did so longest."""

    held: Held
    count: int
    total_ns: int
    longest_ns: int
    longest_at_ns: int


NOTHING = Interruptions((), *(np.zeros(0, np.int64),) * 4)


def sum_interruptions(found: Interruptions) -> tuple[HeldSum, ...]:
    """Sum all but what the user marked by name, the longest in all first.

    A range inside of another of the list counts for both. The reason is that of the longest.
    """
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
    """Events of one kind. `function` is the one with the most of them, `reason` its most frequent, in one line."""

    count: int = 0
    duration_ns: int = 0
    functions: int = 0
    function: str = ""
    reason: str = ""


@dataclass(frozen=True)
class Logged:
    """The library that took longest; `step_ns` is its mean per training step, calls between the steps included."""

    name: str
    calls: int
    step_ns: float
    longest_ns: int


@dataclass(frozen=True)
class Shift:
    """A change at the place `at` of the steps given; `before_ns` and `after_ns` are the medians on both sides.

    `held_frac` is the smaller part, of the blocks before and of those after, that lie on their side of the middle.
    """

    at: int
    before_ns: float
    after_ns: float
    chance: float
    held_frac: float

    @property
    def change_frac(self) -> float:
        return self.after_ns / self.before_ns - 1.0 if self.before_ns else 0.0


@dataclass(frozen=True)
class SlowConvolutions:
    """Convolutions for which no library has code: their share of the operators' time, and what of theirs float32 saves."""

    share_frac: float = 0.0
    saved_frac: float = 0.0


@dataclass(frozen=True)
class LoopedPhase:
    """A phase of the mean step, and what is saved of it with one call for all rows: surely, and at most."""

    phase: str
    low_ns: float
    high_ns: float


@dataclass(frozen=True)
class LoopedRows:
    """A loop over the `rows` rows of a tensor, in which a step calls operators `calls` times, most often those of `names`.

    `is_free`: no row needs the result of another, as far as can be told: they are the samples of a batch, or are gathered by
    lists of numbers. `holds_batches`: every call works on whole batches, so what it goes over is time or space.
    """

    rows: int
    calls: float
    names: tuple[str, ...]
    phases: tuple[LoopedPhase, ...]
    is_free: bool
    holds_batches: bool


@dataclass(frozen=True)
class AnomalyWork:
    """Per step: the nodes of the backward, of each of which the forward keeps a traceback, and the time of looking for
    NaN after each of them."""

    nodes: float
    checks_ns: float


@dataclass(frozen=True)
class SampledShare:
    """A share of so many samples; `low_frac` to `high_frac` holds it in 95 of 100 cases."""

    samples: int
    share_frac: float
    low_frac: float
    high_frac: float


@dataclass(frozen=True)
class Sampled:
    """What ran where stacks were sampled: by the phases taken together, by the stages of the loader that the steps wait for,
    and by phase what of it is the user's own. `tracebacks` is what keeping tracebacks takes of the forward, None where too
    few samples tell.
    """

    phases: Mapping[tuple[str, ...], Part]
    stages: Mapping[tuple[str, ...], Part]
    own_work: Mapping[str, OwnWork | None]
    tracebacks: SampledShare | None = None


COMPUTING = ("forward", "backward", "optimizer")
"""The phases in which a step computes."""


@dataclass(frozen=True)
class ChosenSteps:
    """Training steps as arrays of equal length in time order, and what each is: `StepSelection`, as far as rules read it.

    `kept` are those that the average covers; `regular` leaves out the first of each epoch, too.
    """

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
    """The training steps and what they are made of, as means over the steps of the average.

    `rows` are training steps, aligned with `selection`; `other_rows` are the others. `regular_phases_ns` leave out the
    first steps of an epoch.
    """

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
    """What a step is called: batch, where the run only infers."""
    micro_batches: int = 1
    """Batches whose gradients the usual step accumulates."""
    slow_convolutions: SlowConvolutions = field(default_factory=SlowConvolutions)
    operator_fracs: Mapping[str, float] = field(default_factory=dict)
    """Share of each phase in operators, as the detailed steps show it; empty where there are none."""
    looped: LoopedRows | None = None
    """A loop of Python over the rows of a tensor, as the detailed steps show it."""
    stalled: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    """Places of the regular steps that are much longer than usual."""
    stall_cause: str = ""
    """What held most of those, if it has a name."""
    shift: Shift | None = None
    """Where the regular steps became longer or shorter for good, None where they did not."""

    @property
    def steady(self) -> int:
        """How many steps are regular: no warm-up, not in a window, not the first of an epoch."""
        return int(self.selection.regular.sum())

    def share(self, *names: str) -> float:
        """Return the share of the mean step that the phases take."""
        return sum(self.phases_ns[name] for name in names) / self.mean_ns if self.mean_ns else 0.0

    def find_growth(self, before: Ints, after: Ints) -> dict[str, float]:
        """Return by how many ns the median of each phase grew from some steps, by their places, to others."""
        values = {name: read_column(self.rows, f"{name}_ns") for name in PHASE_NAMES}
        return {name: float(np.median(times[after]) - np.median(times[before])) for name, times in values.items()}
