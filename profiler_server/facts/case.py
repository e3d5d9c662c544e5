"""One rank of a run as the rules see it, what a rule is, what it returns, and the claim that is made of that."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from collector.estimating.model import LoopModel
from profiler_server.diagnosis.limits.facts import CAPPED_DEMAND_FRAC, CAPPED_NEED, MIN_ACCUMULATED, QUEUED_FRAC
from profiler_server.facts.job import Ranks
from profiler_server.facts.loading import InputFreeStep, Loading
from profiler_server.facts.machine import Device, Host, Products, Subnormals
from profiler_server.facts.steps import AnomalyWork, Sampled, Steps, read_column


@dataclass(frozen=True)
class Evidence:
    """Where a user can see it: a page, and the query that opens the right place of it."""

    page: str
    query: str
    text: str


STEPS_PAGE = Evidence("steps", "", "The average, phase by phase")


@dataclass(frozen=True)
class Abstention:
    """A rule that could not be judged: which signal is missing and how to collect it."""

    rule: str
    missing: str
    how: str


@dataclass(frozen=True)
class Overhead:
    """What recording took of the training thread, and how that was measured."""

    training_thread_ns_per_step: float
    share_frac: float | None
    how: str


@dataclass(frozen=True)
class RankNotes:
    """What the manifest says of a rank, as far as rules read it; `is_trace` says that nothing but a trace is known."""

    rank: int
    is_trace: bool
    cpu_count: int | None
    usable_cores: float | None
    torch_threads: int | None
    overhead: Overhead
    facts: Mapping[str, Any]


@dataclass(frozen=True)
class Case:
    """One rank of a run as the rules see it. `loading` is that of the loader that the steps wait for longest; where
    several feed them, `other_loadings` are the others. `stacks` is None where none were sampled. `anomaly` is what anomaly
    detection did, None where it was off or not seen; `input_free` is None where no probe measured the step whose batch is
    ready. `subnormals` and `products` are what the probe found out about the processor's arithmetic."""

    manifest: RankNotes
    steps: Steps
    loading: Loading
    device: Device
    host: Host
    ranks: Ranks
    other_loadings: tuple[Loading, ...] = ()
    stacks: Sampled | None = None
    anomaly: AnomalyWork | None = None
    input_free: InputFreeStep | None = None
    subnormals: tuple[Subnormals, ...] = ()
    products: Products | None = None

    @property
    def facts(self) -> Mapping[str, Any]:
        return self.manifest.facts

    @property
    def is_imported(self) -> bool:
        """Say whether the rank was read from a trace, and is not a whole run of Stepscope."""
        return self.manifest.is_trace

    @property
    def shows_no_workers(self) -> bool:
        """Say whether the trace has the iterator of a loader without workers; a trace knows no more of its loader."""
        return self.facts.get("data_loader") == "single_process"

    @property
    def data_wait_ns(self) -> float:
        """The wait for the loader in the mean step: the most that any change to it can save."""
        mean_ns = self.loading.mean_wait_ns
        if not self.is_imported:
            return mean_ns
        return min(mean_ns, self.loading.wait_ns + max(self.loading.loop.model.extra_ns, 0.0))

    @property
    def transfer_ns(self) -> float:
        """Communication that holds the mean step, the wait for slower ranks taken out.

        A rank that comes early is held until the last one is there; only what the least held rank spends is transfer: in
        each step by itself, because the ranks may take turns.
        """
        comparison = self.ranks.verdict.comparison
        known = comparison.transfer_ns if comparison is not None else None
        held = [self.steps.phases_ns, *(peer.phases_ns for peer in self.ranks.peers)]
        return min([*(phases["communication"] for phases in held), *([] if known is None else [known])])

    @property
    def backwards_per_step(self) -> float:
        return self._mean_count("backwards")

    @property
    def backwards_per_update(self) -> float:
        updates = self._mean_count("optimizer_steps")
        return self.backwards_per_step / updates if updates else 0.0

    def _mean_count(self, name: str) -> float:
        return float(read_column(self.steps.rows, name)[self.steps.selection.kept].mean())

    @property
    def needless_syncs_frac(self) -> float:
        """Share of the reductions of gradients that accumulating them without would save, 0 where nothing is known."""
        ddp, backwards = self.ranks.ddp, self.backwards_per_update
        if ddp is None or self.ranks.world_size < 2 or not ddp.syncs_all or backwards < MIN_ACCUMULATED:
            return 0.0
        return 1.0 - 1.0 / backwards

    @property
    def has_odd_buckets(self) -> bool:
        ddp = self.ranks.ddp
        return ddp is not None and self.ranks.world_size > 1 and (ddp.has_tiny_buckets or ddp.has_one_bucket)

    @property
    def lacks_processors(self) -> bool:
        """Say whether the processors that the run may use are all in use, or the training thread queues for one."""
        load = self.host.load
        queued_frac = load.queued_frac or 0.0 if load is not None else 0.0
        return queued_frac >= QUEUED_FRAC or self.demand_frac >= CAPPED_DEMAND_FRAC

    @property
    def is_capped(self) -> bool:
        """Say whether there is a worker per core, they compute rather than wait, and no processor is left for more."""
        busy = self.loading.cpu_need > CAPPED_NEED and self.demand_frac >= CAPPED_DEMAND_FRAC
        return busy and self.loading.loop.model.workers >= int(self.host.cores)

    @property
    def demand_frac(self) -> float:
        """Cores in use while steps ran over those that can be used; estimated from the work where it was not sampled."""
        load, loop = self.host.load, self.loading.loop
        if load is not None and load.in_use is not None:
            return load.in_use / self.host.cores
        model = loop.model
        per_batch = self.loading.batch_ns * self.loading.cpu_frac
        own = (1.0 - self.loading.wait_frac) * model.steps[0].cores if model.steps else 0.0
        making = per_batch * loop.fetches / loop.regular_step_ns if loop.regular_step_ns else 0.0
        return (making + own) / model.cores + loop.contention_frac


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
    the training thread has less to compute, which leaves its caches to the rest of the step. `is_of_job` says that the
    change is known to shorten the step of every rank by as much.
    """

    change: Callable[[LoopModel], LoopModel]
    touches: Mapping[str, float]
    feeds: bool = False
    best: Callable[[LoopModel], LoopModel] | None = None
    eases: bool = False
    is_of_job: bool = False


@dataclass(frozen=True)
class Text:
    """What is said of a finding: what was measured and at which threshold it is said, what to do, and the code to copy.

    `fix` is the change in a few words ("num_workers 2 → 6"). `assumption` is what the prediction takes for granted
    ("transforms took half as long"), where reaching it is up to the user.
    """

    title: str
    measured: str
    threshold: str
    advice: str
    change: str
    fix: str
    assumption: str = ""


@dataclass(frozen=True)
class Finding:
    """What a rule found. The prediction is made from `what_if` by the diagnosis, the same way for every rule.

    `evidence` is where it can be seen: the average step, unless a rule says otherwise.
    `what_if` None claims no step time. `gain_range` bounds the part of the simulated gain that can be expected: a step
    time is predicted by a rule that is sure of its fix, a range by one that is not. `severity` is set by rules that claim
    nothing. `settings` are the arguments of the DataLoader that the change sets, empty for a change to other code. `saved_per_step_frac` is what a change between
    the steps saves of the run, as a share of its steps: changes to the step that save less come after it. `otherwise` is
    the fact that is stated where the change gains too little to be suggested; `basis` says how the prediction was made,
    where the tier does not.
    """

    text: Text
    evidence: tuple[Evidence, ...] = (STEPS_PAGE,)
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
    change is known to gain. `about` is its sentence in the list of rules, where its judge has no docstring of its own.
    """

    id: str
    knob: str
    effort: Effort
    judge: Callable[[Case], Finding | Abstention | None]
    muted_when_input_bound: bool = False
    stage: str = ""
    about: str = ""


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
