"""A rank as the rules see it. The types of a line of the user's code, a rule, its result, and its prediction."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from collector.estimating.model import LoopModel
from collector.format.phases import OUTSIDE
from profiler_server.diagnosis.limits.facts import CAPPED_DEMAND_FRAC, CAPPED_NEED, MIN_ACCUMULATED, QUEUED_FRAC
from profiler_server.facts.job import Ranks
from profiler_server.facts.loading import Loading
from profiler_server.facts.machine import Device, Host, RankNotes, RepeatedBackwards, RepeatedNodes, SpareNodes
from profiler_server.facts.steps import (
    AnomalyWork,
    ModelCalls,
    Sampled,
    Steps,
    UnusedGradients,
    read_column,
)


@dataclass(frozen=True)
class Evidence:
    """A place where the user can see a fact: a page, and the query that opens the page at the right position."""

    page: str
    query: str
    text: str


STEPS_PAGE = Evidence("steps", "", "The average, phase by phase")


@dataclass(frozen=True)
class Abstention:
    """A rule that could not be judged, the signal that was missing, and how to collect this signal."""

    rule: str
    missing: str
    how: str


Doing = Literal["", "backward", "update", "loader"]
"""What a line of the training loop calls: "" for anything else. A loop has one line of each, whatever it trains."""

WORKERS, THREADS = "workers", "threads"
"""In place of a phase: the work of DataLoader workers, or of other threads of the process, while the step waits for it."""


@dataclass(frozen=True)
class Line:
    """A line of a file and its share of the mean step. `text` is the line at the time of the recording, "" if unknown."""

    number: int
    share_frac: float
    text: str = ""


@dataclass(frozen=True)
class LineOperator:
    """An operator that a line calls: calls per step, mean host and backward time of a call, share of all backward."""

    name: str
    calls: float
    mean_ns: float
    backward_ns: float = 0.0
    backward_frac: float = 0.0

    @property
    def whole_ns(self) -> float:
        """The time of all calls of the operator in a step, including their backward."""
        return self.calls * (self.mean_ns + self.backward_ns)


@dataclass(frozen=True)
class LineWork:
    """The operators of a hotspot in the detailed steps, those with the most time (backward included) first.

    `operator_frac` is the share of the hotspot's time in operators; the rest of its time is Python. `backward_frac` is
    the share of all backward time that computes gradients of these operators outside of the hotspot, `unused_frac` that
    of gradients nobody uses. `again_frac` and `spare_frac` are the hotspot's shares of all repeated computations, and of
    all whose results are mostly dropped."""

    operators: tuple[LineOperator, ...]
    calls: float
    mean_ns: float
    operator_frac: float
    backward_frac: float
    unused_frac: float = 0.0
    again_frac: float = 0.0
    spare_frac: float = 0.0


@dataclass(frozen=True)
class LineCourse:
    """A hotspot over the run, by thirds of the run.

    `times_ns` is its time in the mean step of each third. `error_ns` is the standard error of the growth from the first
    to the last third. `rest_ns` is the rest of the step in the first and in the last third; `steps` are the steps in
    the middle of these two. `asleep_frac` is the share of samples in which the training thread slept. `threads` is the
    mean number of running threads of the process. The last two are None if unknown.
    """

    times_ns: tuple[float, float, float]
    error_ns: float
    steps: tuple[int, int]
    rest_ns: tuple[float, float]
    asleep_frac: float | None = None
    threads: float | None = None

    @property
    def growth_ns(self) -> float:
        return self.times_ns[2] - self.times_ns[0]


@dataclass(frozen=True)
class Hotspot:
    """A function of the user, or one line of the training loop, and its share of the mean step.

    The share includes all that the function calls, except functions of the user that are hotspots themselves.
    `low_frac` to `high_frac` is its 95 % interval. `lines` are the lines of the function, the largest share first.
    `phases` is the share of the mean step by phase; its entries `WORKERS` and `THREADS` are the waits for these, divided
    according to their work. `calls` are the library functions that the lines call, by share of the mean step; `inside`
    are the innermost functions in these calls. `made_frac` is the part of the share in which an object or an iterator is
    made. `caller` is the line that calls the function most often, as file:line, "" if the loop calls it. `work` is None
    without detailed steps, `course` with few steps. `backward_frac` is the share of the mean step in which gradients of
    the hotspot are computed elsewhere.
    """

    function: str
    file: str
    lines: tuple[Line, ...]
    samples: int
    share_frac: float
    low_frac: float
    high_frac: float
    phases: Mapping[str, float]
    calls: Mapping[str, float]
    inside: Mapping[str, float]
    made_frac: float = 0.0
    caller: str = ""
    doing: Doing = ""
    is_of_loop: bool = False
    work: LineWork | None = None
    backward_frac: float = 0.0
    course: LineCourse | None = None

    @property
    def whole_frac(self) -> float:
        """The share of the mean step that the hotspot takes with its backward. This is the most that can be saved."""
        return self.share_frac + self.backward_frac

    @property
    def rerun_frac(self) -> float:
        """The share of the step in which a backward runs the hotspot, without gradients that the hotspot takes itself."""
        return max(self.phases.get("backward", 0.0) - self.calls.get("torch.grad", 0.0), 0.0)

    @property
    def place(self) -> str:
        """The line of the hotspot with the largest share, as file:line."""
        return f"{self.file.rpartition('/')[2]}:{self.lines[0].number}"

    @property
    def subject(self) -> str:
        """The name of the hotspot in a text: the function, or file:line for a line of the loop."""
        return self.place if self.is_of_loop else self.function

    @property
    def key(self) -> str:
        """A name that is the same in another run: the function, or the text of a line of the loop; "" if unknown."""
        return self.lines[0].text if self.is_of_loop else self.function

    @property
    def name(self) -> str:
        """The subject, with brackets if it is a function: `accuracy()`, `train.py:31`."""
        return self.place if self.is_of_loop else f"{self.function}()"


@dataclass(frozen=True)
class Lines:
    """The mean step by lines of the user's code. The shares of all parts sum to 1.

    `hotspots` are sorted by share. `rest_frac` is the sum over the user's lines with a small share each. `foreign_frac`
    is the share of code that no line of the user calls. `unseen_frac` is the share of phases without a sample.
    `through_fracs` maps the name of a function, or the text of a line of the loop, to the share of samples with this
    function or line on the stack.
    """

    samples: int
    hotspots: tuple[Hotspot, ...]
    rest_frac: float
    foreign_frac: float
    unseen_frac: float
    through_fracs: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """A rank of a run as the rules see it. `loading` is the loader for which the steps wait longest; `other_loadings`
    are the other loaders that feed the steps.

    `stacks` and `lines` are None without sampled stacks, `anomaly` without anomaly detection."""

    manifest: RankNotes
    steps: Steps
    loading: Loading
    device: Device
    host: Host
    ranks: Ranks
    other_loadings: tuple[Loading, ...] = ()
    stacks: Sampled | None = None
    lines: Lines | None = None
    anomaly: AnomalyWork | None = None
    unused: UnusedGradients | None = None
    repeated: RepeatedNodes | None = None
    swept: RepeatedBackwards | None = None
    spare: SpareNodes | None = None
    calls: tuple[ModelCalls, ...] = ()

    @property
    def facts(self) -> Mapping[str, Any]:
        return self.manifest.facts

    @property
    def is_imported(self) -> bool:
        """Whether the rank was imported from a trace, and is not a full Stepscope run."""
        return self.manifest.is_trace

    @property
    def knows_phases(self) -> bool:
        """Whether the phases of the steps were measured. A trace format with only step times puts each step into one
        phase."""
        if not self.is_imported or self.steps.operator_fracs or self.device.shares is not None:
            return True
        return sum(time_ns > 0 for time_ns in self.steps.phases_ns.values()) > 1

    @property
    def asks_outside(self) -> bool:
        """Whether most time outside the known calls passes in lines `for … in …:` of the loop, or in threads meanwhile.
        False where another input of the steps was seen."""
        lines = self.lines
        if lines is None or read_column(self.steps.rows, "fetches").any() or self.steps.regular_phases_ns["data_wait"]:
            return False
        asking = sum(frac for text, frac in lines.through_fracs.items() if text[:4] == "for " and text[-1] == ":")
        threads = sum(spot.phases.get(THREADS, 0.0) for spot in lines.hotspots)
        outside = self.steps.share(*OUTSIDE)  # what no line of the user's calls may be a library's thread
        return asking + threads >= 0.25 * outside and asking + threads + lines.foreign_frac >= 0.5 * outside

    @property
    def shows_no_workers(self) -> bool:
        """Whether the trace shows a loader's iterator that uses no workers, and nothing else about the loader."""
        return self.facts.get("data_loader") == "single_process"

    @property
    def data_wait_ns(self) -> float:
        """The data wait in the mean step, ns: the most that a change to the loader can save."""
        mean_ns = self.loading.mean_wait_ns
        if not self.is_imported:
            return mean_ns
        return min(mean_ns, self.loading.wait_ns + max(self.loading.loop.model.extra_ns, 0.0))

    @property
    def transfer_ns(self) -> float:
        """Communication in the mean step that the training waits for, without the wait for slower ranks, in ns.

        An early rank is held until the last rank arrives. So the transfer is only the time of the rank that is held
        least. If known for each step, the minimum is taken per step, because the ranks may take turns.
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
        """Share of the gradient reductions that are needless because gradients are accumulated; 0 if unknown."""
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
        """Whether the run uses all processors that it may use, or the training thread queues for a processor."""
        load = self.host.load
        queued_frac = load.queued_frac or 0.0 if load is not None else 0.0
        return queued_frac >= QUEUED_FRAC or self.demand_frac >= CAPPED_DEMAND_FRAC

    @property
    def is_capped(self) -> bool:
        """Whether each usable core has a worker, the workers compute rather than wait, and no processor is free."""
        busy = self.loading.cpu_need > CAPPED_NEED and self.demand_frac >= CAPPED_DEMAND_FRAC
        return busy and self.loading.loop.model.workers >= int(self.host.cores)

    @property
    def demand_frac(self) -> float:
        """Cores in use while steps ran, divided by the usable cores. If not sampled, it is estimated from the work."""
        load, loop = self.host.load, self.loading.loop
        if load is not None and load.in_use is not None:
            return load.in_use / self.host.cores
        model = loop.model
        per_batch = self.loading.batch_ns * self.loading.cpu_frac
        own = (1.0 - self.loading.wait_frac) * model.steps[0].cores if model.steps else 0.0
        making = per_batch * loop.fetches / loop.regular_step_ns if loop.regular_step_ns else 0.0
        return (making + own) / model.cores + loop.contention_frac


Effort = Literal["flag", "argument", "code", "format", "semantics"]
EFFORTS: tuple[Effort, ...] = ("flag", "argument", "code", "format", "semantics")


@dataclass(frozen=True)
class WhatIf:
    """A change to the loop model, and the most that the change can save of the mean step.

    `change` is the usual version of the change, used to order findings. `full` is the version that the finding's text
    states, None if it is the same. `touches` maps each piece of the step that the change can shorten to its measured
    time; nothing else gets shorter. `feeds`: only the making and receiving of batches changes. `eases`: the training
    thread computes less, which leaves its caches to the rest of the step. `is_of_job`: the step of every rank gets
    shorter by the same time.
    """

    change: Callable[[LoopModel], LoopModel]
    touches: Mapping[str, float]
    feeds: bool = False
    full: Callable[[LoopModel], LoopModel] | None = None
    eases: bool = False
    is_of_job: bool = False


@dataclass(frozen=True)
class Text:
    """The texts of a finding: the measurement, the threshold, the advice, and the code to copy.

    `fix` is the change in a few words ("num_workers 2 → 6"). `assumption` is the predicted extent of the change ("half
    as many bytes were read"), if `fix` does not state it. `removed` is the work to make cheaper ("transforms"), if only
    the user knows how much of it can go. The step without this work is then shown as a bound, not as a prediction.
    """

    title: str
    measured: str
    threshold: str
    advice: str
    change: str
    fix: str
    assumption: str = ""
    removed: str = ""

    @property
    def condition(self) -> str:
        """The extent of the change as a clause ("transforms took no time"); empty if `fix` states it."""
        return f"{self.removed} took no time" if self.removed else self.assumption


@dataclass(frozen=True)
class Finding:
    """The result of a rule. The diagnosis makes the prediction from `what_if`, in the same way for every rule.

    `evidence` are the places where the user can see the fact, by default the average step. Without a `what_if`, no step
    time is predicted. `doubt_frac` is the uncertainty of the gain as a share of the gain, beside the errors of
    simulation and chance. It is None if the saving cannot be known beforehand; then no step time is shown. `least_frac`
    is the share of the gain that a poor version saves. `severity` is set if no step time is predicted; info for a
    finding that is only worth a look means that it names a place and no change. `settings` are the DataLoader arguments
    to set, empty for other code. `saved_per_step_frac` is the saving between the steps, as a share of the steps; step
    changes that save less are listed after this finding. `otherwise` replaces the finding if the change gains too
    little. `basis` is how the prediction was made, if not by simulation or in the usual way. `subject` is the function
    or line if the finding is only about one. It is then left out if another finding names the subject. `least_step_ns`
    is the step if the subject cost nothing.
    """

    text: Text
    evidence: tuple[Evidence, ...] = (STEPS_PAGE,)
    what_if: WhatIf | None = None
    doubt_frac: float | None = None
    least_frac: float = 0.9
    severity: Literal["medium", "low", "info"] = "info"
    settings: Mapping[str, int | bool] = field(default_factory=dict)
    saved_per_step_frac: float = 0.0
    otherwise: Finding | None = None
    basis: str = ""
    subject: str = ""
    least_step_ns: float | None = None


@dataclass(frozen=True)
class Rule:
    """One rule. Rules with the same `knob` change the same setting, so only the best of these rules is shown with its
    gain.

    `judge` returns None if its cause is not there. `muted_when_input_bound` silences the rule (on the device or the
    update) while steps wait for data. `stage` is the stage of the data pipeline that the rule covers ("loader" for how
    the loader fetches). If this stage limits the step and no change is known to gain, the finding is shown without a
    prediction. `about` is the rule's sentence in the list of rules, if `judge` has no docstring."""

    id: str
    knob: str
    effort: Effort
    judge: Callable[[Case], Finding | Abstention | tuple[Finding, ...] | None]
    muted_when_input_bound: bool = False
    stage: str = ""
    about: str = ""


@dataclass(frozen=True)
class Claim:
    """A finding with its predicted step time, alone or on top of the fix `after`.

    `step_ns` and its range are for the extent that the finding states. `is_shown` is true if this range is narrow
    enough. The other figures only order the claims. `usual_ns` is the step after a usual version of the fix.
    `least_gain_ns` is the gain of a poor version. `sure_gain_ns` is the usual gain less all uncertainty of the
    measurement. `feeds`: only the making of batches changes. `instead_of` is the better fix to which this fix is an
    alternative.
    """

    rule: Rule
    finding: Finding
    step_ns: float
    low_ns: float
    high_ns: float
    usual_ns: float
    least_gain_ns: float
    sure_gain_ns: float
    is_shown: bool = True
    feeds: bool = False
    after: str = ""
    instead_of: str = ""

    @property
    def gain_order(self) -> int:
        return EFFORTS.index(self.rule.effort)
