"""What is said of a rank, as pages and `report --json` have it: what bounds it, what to change, its operators.

Field names are the keys of `report --json` (see docs/format.md): times are ns, shares are fractions, absent is None.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from profiler_server.facts.case import Abstention, Evidence

BoundKind = Literal[
    "input", "receive", "processor", "transfer", "launch", "compute", "communication", "overhead", "pipeline", "unknown"
]
"""`receive` and `processor`: the step waits for batches that are ready, to receive them or for a free processor.
`pipeline`: a run without steps, whose own pipeline is limited by a stage."""


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
