"""The results for a rank, as on pages and in `report --json`: what limits its steps, suggested changes, and operators.

Field names are the keys of `report --json` (see docs/reference/format.md). Times are ns, shares are fractions, and a missing
value is None.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from profiler_server.facts.case import Abstention, Evidence, Lines

BoundKind = Literal[
    "input", "receive", "processor", "transfer", "launch", "compute", "communication", "overhead", "pipeline", "unknown"
]
"""`receive`: the step waits to receive batches that are ready. `processor`: it waits for a free processor although
batches are ready. `pipeline`: a run without steps, limited by a stage of the user's own pipeline."""


@dataclass(frozen=True)
class BoundBy:
    """What limits the steps of the run. `stage` is the limiting data stage if the kind is input, receive or pipeline,
    else None. `share_frac` is the share of the step that this limit takes (for a pipeline, the share of time that its
    stage works), None if unknown.

    `confidence_frac` is how certain this limit is, from 0 to 1. `confidence` says the same in words, and why."""

    kind: BoundKind
    stage: str | None
    share_frac: float | None
    confidence_frac: float
    confidence: str = ""


@dataclass(frozen=True)
class Suggestion:
    """A suggested change, with the step time that a re-run should show. `rule` is a stable id.

    `measured` and `threshold` are sentences with figures. `advice` is what to do, in sentences. `change` is the code
    to copy. The three predictions are mean step times, None if the rule makes no claim. They hold under `condition`
    ("half as many bytes were read"), which is empty if the change itself determines its saving. `settings` are the
    DataLoader arguments to set, with their values. `fix` is the change in a few words. `shortens` names the phases
    that get shorter, empty if any phase may. `saved_per_step_frac` is the saving of a change between the steps, as a
    share of the steps. `least_step_ns` is a bound in place of a prediction: the mean step if the work that
    `condition` names took no time ("transforms took no time"). For a line that is worth a look, it is the mean step
    without the line, and the condition is empty. Otherwise it is None."""

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
    least_step_ns: float | None = None
    condition: str = ""

    @property
    def is_look(self) -> bool:
        """Whether the suggestion only names a line that is worth a look, because no rule knows how to change it."""
        return self.least_step_ns is not None and not self.condition


@dataclass(frozen=True)
class Diagnosis:
    """The results of all rules for one rank. `sentence` is the verdict on the Overall page.

    `end` is the beginning of `sentence` if the job stands still or did not end well, else "". `end_detail` follows it,
    if more is known of the end. `limit` is the
    sentence on what limits the rank's steps, without the changes to make. `abstained` are the rules that could not
    judge, with the reasons. `silence` is why there is no suggestion, "" if there is one. `warnings` name results
    that are missing because of an error in Stepscope, one line each. `lines` is the mean step by the user's lines,
    None without sampled stacks."""

    bound_by: BoundBy
    sentence: str
    suggestions: tuple[Suggestion, ...]
    abstained: tuple[Abstention, ...]
    silence: str = ""
    warnings: tuple[str, ...] = ()
    limit: str = ""
    end: str = ""
    end_detail: str = ""
    lines: Lines | None = None


@dataclass(frozen=True)
class OperatorRow:
    """All calls of the operators with one name in the detailed windows; `count` and times are totals over all steps."""

    name: str
    type: str
    count: int
    total_ns: int
    self_ns: int
    device_total_ns: int
    device_self_ns: int


@dataclass(frozen=True)
class KernelRow:
    """All runs of the kernels with one name in the detailed windows; the mean, least and most are per run."""

    name: str
    count: int
    total_ns: int
    mean_ns: float
    min_ns: int
    max_ns: int
