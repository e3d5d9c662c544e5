"""Settings and modes of PyTorch that cost time as they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from profiler_server.diagnosis.limits.device import (
    ANOMALY_GAINS,
    CONVOLUTION_FRAC,
    MOST_OF_FORWARD,
    RECORDED_FRAC,
    TRACEBACK_NS,
    UNUSED_GRADIENTS_FRAC,
)
from profiler_server.diagnosis.limits.facts import MIN_GAIN_FRAC, MIN_STEPS
from profiler_server.diagnosis.what_if import look_for, say_examples, shorten_phases, shorten_step
from profiler_server.diagnosis.wording import OPERATORS_PAGE
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.facts.results import Abstention
from profiler_server.facts.steps import SampledShare
from profiler_server.format import format_count, format_duration, format_number_of, format_share


def _judge_debug_modes(case: Case) -> Finding | None:
    """A mode for finding errors is left on: anomaly detection, or algorithms that must be deterministic."""
    if case.facts.get("anomaly_mode") is True:
        return _find_anomaly_mode(case)
    if case.facts.get("deterministic") is True and case.device.is_used:
        return _find_deterministic()
    return None


def _find_anomaly_mode(case: Case) -> Finding:
    share = case.steps.share("forward", "backward")
    spent = case.steps.phases_ns["forward"] + case.steps.phases_ns["backward"]
    found = Finding(
        title="Anomaly detection is on",
        measured=f"torch.autograd.set_detect_anomaly was on while steps ran; forward and backward take "
        f"{format_duration(spent)}, {format_share(share)} of the step.",
        threshold="Anomaly detection is on in steps that train.",
        advice="It keeps a Python traceback of every operator of the forward and looks for NaN after every operator of "
        "the backward. Small operators take several times as long. Switch it on only while you look for a NaN.",
        change="torch.autograd.set_detect_anomaly(False)",
        fix="without anomaly detection",
        severity="medium",
    )
    cost = _measure_anomaly(case)
    if cost is None:
        return replace(found, advice=f"{found.advice} {_UNSEEN}")
    said = replace(found, measured=f"{found.measured} {cost.sentence}")
    if cost.least_ns < ANOMALY_GAINS * MIN_GAIN_FRAC * case.steps.mean_ns:
        return replace(said, advice=f"{said.advice} {_SMALL}")
    return replace(
        said,
        what_if=shorten_step(case, "anomaly", cost.most_ns, cost.usual_ns / cost.most_ns),
        gain_range=(cost.least_ns / cost.usual_ns, cost.most_ns / cost.usual_ns),
        tier="A" if cost.is_measured else "R",
    )


_UNSEEN = (
    "What that costs depends on the number of operators, and this recording shows neither them nor Python stacks: record "
    'with Profiler(window="auto") for a range.'
)
_SMALL = "What is known of its cost is too small a part of the step for a prediction."


@dataclass(frozen=True)
class _Cost:
    """What anomaly detection takes of a step: at the least, usually, and at most."""

    least_ns: float
    usual_ns: float
    most_ns: float
    sentence: str
    is_measured: bool


def _measure_anomaly(case: Case) -> _Cost | None:
    """Add up tracebacks and checks: sampled and recorded where they were, tracebacks else by the number of operators."""
    forward_ns, backward_ns = case.steps.phases_ns["forward"], case.steps.phases_ns["backward"]
    work = case.anomaly
    checks_ns = min(work.checks_ns if work is not None else 0.0, backward_ns)
    seen = case.stacks.tracebacks if case.stacks is not None else None
    if seen is not None:
        tracebacks_ns = [forward_ns * share for share in _bound(seen)]
        said = f"Keeping tracebacks takes {format_share(seen.share_frac)} of the forward ({seen.samples:,} samples)"
    elif work is not None:
        tracebacks_ns = [min(work.nodes * each_ns, MOST_OF_FORWARD * forward_ns) for each_ns in TRACEBACK_NS]
        low, _, high = tracebacks_ns
        said = (
            f"A step keeps {work.nodes:,.0f} tracebacks, of {format_duration(TRACEBACK_NS[0])} to "
            f"{format_duration(TRACEBACK_NS[-1])} each by how deep the code is: {format_duration(low)} to {format_duration(high)}"
        )
    else:
        return None
    checked = f"; looking for NaN takes {format_duration(checks_ns)} of a detailed step" if checks_ns else ""
    # Checks are recorded with the cost of recording them, which may be half of it.
    low, usual, high = (
        time_ns + part * checks_ns for time_ns, part in zip(tracebacks_ns, (0.4, 0.8, 1.1), strict=True)
    )
    if usual <= 0:
        return None
    return _Cost(low, usual, high, f"{said}{checked}.", seen is not None)


def _bound(seen: SampledShare) -> tuple[float, float, float]:
    """Return the least, usual and largest share of a phase that goes with tracebacks, by how many samples lie in them.

    Keeping and freeing them costs the other samples: in two measured programs the forward without them took 6 % of what it
    took with them, where the samples left 16 and 26 %.
    """
    return 0.8 * seen.low_frac, 1.0 - 0.4 * (1.0 - seen.share_frac), 1.0 - 0.15 * (1.0 - seen.high_frac)


def _find_deterministic() -> Finding:
    return Finding(
        title="Only deterministic algorithms are allowed",
        measured="torch.use_deterministic_algorithms was on while steps ran.",
        threshold="Deterministic algorithms on an accelerator.",
        advice="Scatter, index and some convolution kernels have slower deterministic versions. If runs need not be equal "
        "bit by bit, switch it off and compare. No range is known beforehand: most kernels are the same in both modes, and "
        "single ones take many times as long.",
        change="torch.use_deterministic_algorithms(False)",
        fix="without deterministic algorithms",
        severity="low",
    )


def _judge_cudnn_benchmark_off(case: Case) -> Finding | Abstention | None:
    """cuDNN picks its convolution algorithms by rule of thumb, not by trying them."""
    if all(entry.kind != "cuda" for entry in case.device.entries):
        return None
    seen = look_for(case, "cudnn_benchmark_off", "convolutions")
    if seen is None or isinstance(seen, Abstention):
        return seen
    if seen.figures["share"] < CONVOLUTION_FRAC:
        return None
    tries = case.facts.get("cudnn_benchmark")
    if not isinstance(tries, bool):
        return Abstention(
            "cudnn_benchmark_off", "whether torch.backends.cudnn.benchmark was on", "Record with Stepscope."
        )
    if tries:
        return None
    share = format_share(seen.figures["share"])
    return Finding(
        title="cuDNN does not try its algorithms",
        measured=f"Convolutions take {share} of the time of all kernels{say_examples(seen)}; torch.backends.cudnn.benchmark is off.",
        threshold=f"At least {format_share(CONVOLUTION_FRAC)} of the kernels' time in convolutions, with the setting off.",
        advice="If the images have few different sizes, let cuDNN time its algorithms once for each. With sizes that change "
        "all the time it would time them all the time: leave it off then.",
        change="torch.backends.cudnn.benchmark = True",
        fix="cudnn.benchmark",
        evidence=(OPERATORS_PAGE,),
    )


def _judge_needless_grad(case: Case) -> Finding | Abstention | None:
    """Gradients that nobody uses: inference that records its operators, and models that no optimizer updates."""
    if case.steps.phases_ns["backward"] or case.steps.phases_ns["optimizer"]:
        return _judge_training(case)
    seen = look_for(case, "needless_grad", "recorded_gradients")
    if seen is None or isinstance(seen, Abstention):
        return seen
    share = seen.figures["share"]
    if share < RECORDED_FRAC:
        return None
    return Finding(
        title="Inference records gradients",
        measured=f"The window has no backward, yet {format_share(share)} of its operators ({seen.count:.0f} per "
        f"{case.steps.noun}) ran with gradients enabled.",
        threshold=f"At least {format_share(RECORDED_FRAC)} of the operators of a window without a backward.",
        advice="Run inference in inference mode: results of layers are freed at once, and operators do less on the host. How "
        "much time that saves is not known beforehand.",
        change="with torch.inference_mode():\n    out = model(batch)",
        fix="inference_mode",
        evidence=(OPERATORS_PAGE,),
    )


def _judge_training(case: Case) -> Finding | None:
    """Look for parameters with gradients that no optimizer updates, such as those of a teacher or a frozen backbone."""
    found = case.facts.get("unused_gradients")
    noted = [found.get(name) for name in ("parameters", "updated")] if isinstance(found, Mapping) else []
    counts = [count for count in noted if isinstance(count, int) and count >= 0]
    if len(counts) != 2:
        return None
    unused, updated = counts
    share = unused / max(unused + updated, 1)
    backward_ns = case.steps.phases_ns["backward"]
    if share < UNUSED_GRADIENTS_FRAC or not backward_ns:
        return None
    return Finding(
        title="Gradients are computed for a model that is not trained",
        measured=f"{format_count(unused)} parameters have gradients, but no optimizer updated them in the first steps: "
        f"{format_share(share)} of all with gradients. The backward takes {format_duration(backward_ns)}, "
        f"{format_share(case.steps.share('backward'))} of the {case.steps.noun}.",
        threshold=f"At least {format_share(UNUSED_GRADIENTS_FRAC)} of the parameters that have gradients.",
        advice="Call a teacher, a reward model or a frozen backbone without gradients, or switch them off for its parameters: "
        "its backward is not computed then, and its activations are freed at once. Leave it as it is if you update these "
        "parameters yourself, or seldom.",
        change="with torch.no_grad():\n    targets = teacher(batch)  # or: teacher.requires_grad_(False)",
        fix="no gradients for what is not trained",
        assumption="the backward takes as long for each parameter",
        what_if=shorten_phases(case, ("backward",), share),
        tier="R",
        gain_range=(0.4, 1.1),
    )


def _judge_find_unused_parameters(case: Case) -> Finding | None:
    """DistributedDataParallel looks for unused parameters in every step, and there are none."""
    ddp = case.ranks.ddp
    if ddp is None or not ddp.finds_unused or ddp.unused_bytes != 0 or ddp.backwards < MIN_STEPS:
        return None
    if case.ranks.world_size < 2:
        return None
    return Finding(
        title="Unused parameters are looked for, and there are none",
        measured=f"find_unused_parameters=True, and every parameter got a gradient; the forward takes "
        f"{format_duration(case.steps.phases_ns['forward'])}, in which the graph is searched.",
        threshold="The search is on, and found none when its result was last read.",
        advice="In every forward it goes through the whole graph, and tells the other ranks what it found. Without it the "
        "step saves that, which is little for a large model. It is needed where a rank may skip a part of the model.",
        change="model = DistributedDataParallel(model, find_unused_parameters=False)",
        fix="find_unused_parameters=False",
    )


def _judge_data_parallel(case: Case) -> Finding | None:
    """nn.DataParallel copies the model to every device in every step, from one thread."""
    devices = case.ranks.parallel_devices
    if devices < 2:
        return None
    spent = sum(case.steps.phases_ns[name] for name in ("forward", "backward"))
    return Finding(
        title="nn.DataParallel is in use",
        measured=f"One process drives {devices} devices through nn.DataParallel; forward and backward take "
        f"{format_duration(spent)}, {format_share(case.steps.share('forward', 'backward'))} of the {case.steps.noun}.",
        threshold="Two devices or more.",
        advice="In every step it copies all parameters to every device, gathers all outputs on one, and runs all devices from "
        "Python threads that share one interpreter. DistributedDataParallel runs one process per device and exchanges "
        "gradients only, while the backward computes.",
        change="model = DistributedDataParallel(model.to(rank), device_ids=[rank])\n"
        f"# start with: torchrun --nproc-per-node={devices} train.py",
        fix="DistributedDataParallel",
    )


def _judge_graph_breaks(case: Case) -> Finding | None:
    """torch.compile has to leave its graph for Python."""
    breaks = case.steps.compiles.get("graph_break")
    if breaks is None:
        return None
    reason = f": {breaks.reason.rstrip('.')}" if breaks.reason else ""
    where = breaks.function
    if breaks.functions > 1:
        where = f"{format_number_of(breaks.functions, 'function')}, most of them in {breaks.function}"
    return Finding(
        title="Compiled functions break into several graphs",
        measured=f"{format_number_of(breaks.count, 'graph break')} in {where}{reason}.",
        threshold="Any graph break: operators are not fused across it, and Python runs between the graphs.",
        advice="Move what breaks the graph (prints, .item(), calls into other libraries) out of the compiled function.",
        change="torch.compile(model, fullgraph=True)  # raises an error at the line that breaks; for searching",
        fix="one graph",
        evidence=(OPERATORS_PAGE,),
        severity="low",
    )


RULES = (
    Rule("debug_modes", knob="debug", effort="flag", judge=_judge_debug_modes),
    Rule(
        "cudnn_benchmark_off",
        knob="cudnn",
        effort="flag",
        judge=_judge_cudnn_benchmark_off,
        muted_when_input_bound=True,
    ),
    Rule("needless_grad", knob="grad", effort="flag", judge=_judge_needless_grad),
    Rule("find_unused_parameters", knob="find_unused", effort="flag", judge=_judge_find_unused_parameters),
    Rule("data_parallel", knob="parallel", effort="code", judge=_judge_data_parallel),
    Rule("graph_breaks", knob="graph_breaks", effort="code", judge=_judge_graph_breaks),
)
