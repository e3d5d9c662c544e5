"""The results that cross from analysis to rules, pages and `report --json`.

Field names are the keys of `report --json` (see docs/format.md): times are ns, shares are fractions, absent is None.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

BoundKind = Literal[
    "input", "receive", "processor", "transfer", "launch", "compute", "communication", "overhead", "pipeline", "unknown"
]
"""`receive` and `processor`: the step waits for batches that are ready, to receive them or for a free processor.
`pipeline`: a run without steps, whose own pipeline is limited by a stage."""


@dataclass(frozen=True)
class DeviceTimes:
    """TraceLens's accounting over the span of the steps; the four parts sum to the total."""

    total_ns: int
    computation_ns: int
    exposed_communication_ns: int
    exposed_copy_ns: int
    idle_ns: int


@dataclass(frozen=True)
class IdleCauses:
    """HTA's causes of the gaps before kernels."""

    host_wait: int
    kernel_wait: int
    other: int


@dataclass(frozen=True)
class DeviceSummary(DeviceTimes):
    """The times, from the first to the last work, and shares of the steps; `steps_ns` is the time of all of those."""

    linked_only: DeviceTimes
    utilization_frac: float | None
    sm_efficiency_frac: float | None
    occupancy_frac: float | None
    tensor_core_frac: float | None
    idle_causes_ns: IdleCauses
    steps_ns: int = 0

    @property
    def whole_ns(self) -> int:
        """The time that shares are of: that of the steps, or from the first to the last work where that is longer."""
        return max(self.steps_ns, self.total_ns)

    @property
    def idle_frac(self) -> float | None:
        """The share of the steps in which nothing runs, before the first and after the last work too."""
        active_ns = self.total_ns - self.idle_ns
        return 1.0 - active_ns / self.whole_ns if self.whole_ns else None


@dataclass(frozen=True)
class OperatorRow:
    name: str
    type: str
    count: int
    total_ns: int
    self_ns: int
    device_total_ns: int
    device_self_ns: int


@dataclass(frozen=True)
class KernelRow:
    name: str
    count: int
    total_ns: int
    mean_ns: float
    min_ns: int
    max_ns: int


@dataclass(frozen=True)
class QueueSummary:
    """`usage_frac` is mean depth / capacity, `empty_frac` the share of samples at depth 0."""

    name: str
    capacity: int
    mean_depth: float
    usage_frac: float
    empty_frac: float
    samples: int


@dataclass(frozen=True)
class StageSummary:
    """Shares are of the replicas' wall time, or of the steps for what the training process runs; `mean_ns` is work per batch. `loader` is None for a stage of the user's."""

    name: str
    replicas: int
    count: int
    mean_ns: float
    busy_frac: float | None
    input_wait_frac: float | None
    output_wait_frac: float | None
    loader: int | None = None


@dataclass(frozen=True)
class BoundBy:
    """What the run is bound by. `stage` is the data stage to blame where the kind is input, receive or pipeline.

    `confidence` says in words how sure that is, and why.
    """

    kind: BoundKind
    stage: str | None
    share_frac: float | None
    confidence_frac: float
    confidence: str = ""


@dataclass(frozen=True)
class Evidence:
    """Where a user can see it: a page, and the query that opens the right place of it."""

    page: str
    query: str
    text: str


@dataclass(frozen=True)
class Suggestion:
    """A claim about a step time that a re-run can check. `rule` is a stable id.

    `measured` and `threshold` are sentences with figures; `change` is the code to copy; predictions are step times,
    None where the rule makes no claim. `settings` are the arguments of the DataLoader that it asks for, with their values.
    `fix` is the change in a few words. `shortens` names the phases that the change makes shorter, empty where it may be any.
    `saved_per_step_frac` is what a change between the steps saves of the run, as a share of its steps.
    """

    rule: str
    title: str
    severity: Literal["high", "medium", "low", "info"]
    measured: str
    threshold: str
    advice: str
    change: str
    predicted_step_ns: float | None
    predicted_low_ns: float | None
    predicted_high_ns: float | None
    evidence: tuple[Evidence, ...]
    settings: Mapping[str, int | bool] = field(default_factory=dict)
    fix: str = ""
    shortens: tuple[str, ...] = ()
    saved_per_step_frac: float = 0.0


@dataclass(frozen=True)
class Abstention:
    """A rule that could not be judged: which signal is missing and how to collect it."""

    rule: str
    missing: str
    how: str


@dataclass(frozen=True)
class Diagnosis:
    """Everything that the rules have to say of one rank. `sentence` is the verdict as the Overall page shows it.

    `end` is the part of it that comes first where the job stands still or did not end well, `limit` the one that says what
    the rank is bound by, without what to change. `silence` says why there is no suggestion, empty where there is one; `warnings` what could not be judged by a fault
    of ours, one line each.
    """

    bound_by: BoundBy
    sentence: str
    suggestions: tuple[Suggestion, ...]
    abstained: tuple[Abstention, ...]
    silence: str = ""
    warnings: tuple[str, ...] = ()
    limit: str = ""
    end: str = ""
