"""What a rule is and what it returns: a finding, and the claim about a step time that is made of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from profiler_server.analysis.data.loader_simulation import LoopModel
from profiler_server.analysis.results import Abstention, Evidence
from profiler_server.diagnosis.facts import Case

Tier = Literal["M", "A", "R"]
Effort = Literal["flag", "argument", "code", "format", "semantics"]
EFFORTS: tuple[Effort, ...] = ("flag", "argument", "code", "format", "semantics")


SIMULATED_GAIN = (0.9, 1.05)
"""The part of a simulated gain to expect of a change that sets an argument: all of it, but for the error of the model."""


@dataclass(frozen=True)
class WhatIf:
    """A change to the model of the loop, and the most that it can save of the mean step.

    `touches` names each part of the step that the change can shorten, with the time of that part as measured: nothing
    else becomes shorter. `feeds` says that only making and receiving batches changes. `best` is the change where all goes
    that it is about, for one whose extent is up to the user: its step is the lower end of the range. `eases` says that
    the training thread has less to compute, which leaves its caches to the rest of the step. `bound_ns` is what it can
    save as things stand, where the rest of the job sets a limit to that.
    """

    change: Callable[[LoopModel], LoopModel]
    touches: Mapping[str, float]
    feeds: bool = False
    best: Callable[[LoopModel], LoopModel] | None = None
    eases: bool = False
    bound_ns: float = math.inf


@dataclass(frozen=True)
class Finding:
    """What a rule found. The prediction is made from `what_if` by the diagnosis, the same way for every rule.

    `fix` is the change in a few words ("num_workers 2 → 6"). `what_if` None claims no step time. `gain_range` bounds
    the part of the simulated gain that can be expected: a step time is predicted by a rule that is sure of its fix,
    a range by one that is not. `severity` is set by rules that claim nothing. `assumption` is what the prediction
    takes for granted ("transforms took half as long"), where reaching it is up to the user. `settings` are the arguments of
    the DataLoader that the change sets, empty for a change to other code. `saved_per_step_frac` is what a change between
    the steps saves of the run, as a share of its steps: changes to the step that save less come after it. `otherwise` is
    the fact that is stated where the change gains too little to be suggested; `basis` says how the prediction was made,
    where the tier does not.
    """

    title: str
    measured: str
    threshold: str
    advice: str
    change: str
    fix: str
    evidence: tuple[Evidence, ...]
    assumption: str = ""
    what_if: WhatIf | None = None
    tier: Tier = "R"
    gain_range: tuple[float, float] = (0.9, 1.05)
    severity: Literal["medium", "low", "info"] = "info"
    settings: Mapping[str, int | bool] = field(default_factory=dict)
    saved_per_step_frac: float = 0.0
    otherwise: Finding | None = None
    basis: str = ""


@dataclass(frozen=True)
class Rule:
    """One rule. Rules with the same `knob` turn the same thing, so only the best of them is shown with its gain.

    `muted_when_input_bound` silences rules on what the device or the update does while the loop starves. `stage` is that
    of the data pipeline that the rule is about ("loader" for how the loader fetches): it is said without a prediction if that stage starves the step and no
    change is known to gain.
    """

    id: str
    knob: str
    effort: Effort
    judge: Callable[[Case], Finding | Abstention | None]
    muted_when_input_bound: bool = False
    stage: str = ""


@dataclass(frozen=True)
class Claim:
    """A finding with the step time that it predicts, alone or (where `after` is set) on top of that fix.

    `least_gain_ns` is what a poor version of the fix gains, `sure_gain_ns` what the predicted one gains after all doubt
    about the measurement. `feeds` says that the fix only changes how batches are made, `is_probed` that the probe measured
    the step which is left then.
    """

    rule: Rule
    finding: Finding
    step_ns: float
    low_ns: float
    high_ns: float
    least_gain_ns: float
    sure_gain_ns: float
    feeds: bool = False
    after: str = ""
    instead_of: str = ""
    is_probed: bool = False

    @property
    def gain_order(self) -> int:
        return EFFORTS.index(self.rule.effort)
