"""Settings and modes of PyTorch that cost time, and the number formats used."""

from __future__ import annotations

from dataclasses import dataclass

from collector.format.phases import COMPUTING, IN_MODEL
from profiler_server.diagnosis.limits import device as limits
from profiler_server.diagnosis.limits.facts import MIN_GAIN_FRAC, MIN_STEPS
from profiler_server.diagnosis.what_if import (
    predict_or,
    shorten_kernels,
    shorten_phases,
    shorten_step,
)
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.facts.steps import SampledShare, count_parameters
from profiler_server.format import format_duration, format_number_of, format_share
from profiler_server.words.phrases import OPERATORS_PAGE, describe


def _judge_debug_modes(case: Case) -> Finding | None:
    """A mode for finding errors is left on: anomaly detection."""
    if case.facts.get("anomaly_mode") is not True:
        return None
    share = case.steps.share(*IN_MODEL)
    spent_ns = case.steps.phases_ns["forward"] + case.steps.phases_ns["backward"]
    cost = _measure_anomaly(case)
    is_small = cost is not None and cost.least_ns < limits.ANOMALY_GAINS * MIN_GAIN_FRAC * case.steps.mean_ns
    entry = "debug_modes.unseen" if cost is None else "debug_modes.small" if is_small else "debug_modes"
    text = describe(case, entry, spent_ns=spent_ns, share=share, cost=f" {cost.sentence}" if cost is not None else "")
    if cost is None or is_small:
        return Finding(text, severity="medium")
    return Finding(
        text,
        severity="medium",
        what_if=shorten_step(case, "anomaly", cost.most_ns, cost.usual_ns / cost.most_ns),
        doubt_frac=max(cost.usual_ns - cost.least_ns, cost.most_ns - cost.usual_ns) / cost.usual_ns,
        least_frac=cost.least_ns / cost.usual_ns,
    )


@dataclass(frozen=True)
class _Cost:
    least_ns: float
    usual_ns: float
    most_ns: float
    sentence: str


def _measure_anomaly(case: Case) -> _Cost | None:
    """Return the cost of anomaly detection per step, of tracebacks and of checks for NaN; None if unknown. Without
    samples, the cost of tracebacks follows from the number of backward nodes."""
    forward_ns, backward_ns = case.steps.phases_ns["forward"], case.steps.phases_ns["backward"]
    work = case.anomaly
    checks_ns = min(work.checks_ns if work is not None else 0.0, backward_ns)
    seen = case.stacks.tracebacks if case.stacks is not None else None
    if seen is not None:
        tracebacks_ns = [forward_ns * share for share in _bound(seen)]
        said = f"Keeping tracebacks takes {format_share(seen.share_frac)} of the forward ({seen.samples:,} samples)"
    elif work is not None:
        tracebacks_ns = [
            min(work.nodes * each_ns, limits.MOST_OF_FORWARD * forward_ns) for each_ns in limits.TRACEBACK_NS
        ]
        low, _, high = tracebacks_ns
        said = (
            f"A step keeps {work.nodes:,.0f} tracebacks, of {format_duration(limits.TRACEBACK_NS[0])} to "
            f"{format_duration(limits.TRACEBACK_NS[-1])} each by how deep the code is: {format_duration(low)} to {format_duration(high)}"
        )
    else:
        return None
    checked = f"; looking for NaN takes {format_duration(checks_ns)} of a detailed step" if checks_ns else ""
    # The recorded time of checks includes the cost of recording them, which may be half of it.
    low, usual, high = (
        time_ns + part * checks_ns for time_ns, part in zip(tracebacks_ns, (0.4, 0.8, 1.1), strict=True)
    )
    if usual <= 0:
        return None
    return _Cost(low, usual, high, f"{said}{checked}.")


def _bound(seen: SampledShare) -> tuple[float, float, float]:
    """Return the least, usual and largest share of the forward that tracebacks cost, from the share of samples in them.

    Keeping and freeing tracebacks also slows the other samples. In two measured programs, the forward without
    tracebacks took 6 % of its time with tracebacks, while the samples outside of tracebacks were 16 and 26 %.
    """
    return 0.8 * seen.low_frac, 1.0 - 0.4 * (1.0 - seen.share_frac), 1.0 - 0.15 * (1.0 - seen.high_frac)


def _judge_find_unused_parameters(case: Case) -> Finding | None:
    """DistributedDataParallel looks for unused parameters in every step, and there are none."""
    ddp = case.ranks.ddp
    if ddp is None or not ddp.finds_unused or ddp.unused_bytes != 0 or ddp.backwards < MIN_STEPS:
        return None
    return Finding(describe(case, "find_unused_parameters")) if case.ranks.world_size > 1 else None


def _judge_data_parallel(case: Case) -> Finding | None:
    """nn.DataParallel copies the model to every device in every step, from one thread."""
    if case.ranks.parallel_devices < 2:
        return None
    spent_ns = case.steps.phases_ns["forward"] + case.steps.phases_ns["backward"]
    return Finding(describe(case, "data_parallel", spent_ns=spent_ns, share=case.steps.share(*IN_MODEL)))


def _judge_graph_breaks(case: Case) -> Finding | None:
    """torch.compile has to leave its graph for Python."""
    breaks = case.steps.compiles.get("graph_break")
    if breaks is None:
        return None
    reason = f": {breaks.reason.rstrip('.')}" if breaks.reason else ""
    several = f"{format_number_of(breaks.functions, 'function')}, most of them in "
    where = f"{several if breaks.functions > 1 else ''}{breaks.function}"
    text = describe(case, "graph_breaks", count=breaks.count, where=where, reason=reason)
    return Finding(text, evidence=(OPERATORS_PAGE,), severity="low")


def _judge_tf32_off(case: Case) -> Finding | None:
    """Products of 32-bit floats run without the tensor cores that the device has for them."""
    return _judge_kernels(case, "tf32_off") if case.device.cuda_generation >= limits.AMPERE else None


def _judge_amp_off(case: Case) -> Finding | None:
    """Products of 32-bit floats on a device whose tensor cores only take 16-bit ones."""
    return _judge_kernels(case, "amp_off") if case.device.cuda_generation == limits.VOLTA else None


def _judge_kernels(case: Case, entry: str) -> Finding | None:
    """Return the finding `entry` if float32 products take much of the device's computing; else None."""
    share = case.device.full_precision_frac
    if share is None or share < limits.FULL_PRECISION_FRAC:
        return None
    what_if = shorten_kernels(case, share, 0.5)
    finding = Finding(describe(case, entry), evidence=(OPERATORS_PAGE,), what_if=what_if, least_frac=0.4)
    return predict_or(case, finding, "kernels", "precision")


def _judge_float64(case: Case) -> Finding | None:
    """Parameters are trained in double precision where no step factorises matrices: twice the bytes, half the vector width, and on most GPUs far less."""
    double, whole = count_parameters(case.facts)
    if not whole or double < limits.FLOAT64_FRAC * whole or case.steps.kinds.factorises:
        return None  # a Cholesky factor or an inverse may need double precision
    spent_ns = sum(case.steps.phases_ns[name] for name in COMPUTING)
    slow = case.steps.slow_convolutions
    saved = limits.FLOAT64_SAVED_FRAC + (slow.saved_frac - limits.FLOAT64_SAVED_FRAC) * slow.share_frac
    entry = "float64.convolutions" if slow.share_frac else "float64"
    share, left_frac = case.steps.share(*COMPUTING), 1.0 - slow.saved_frac
    return Finding(
        describe(case, entry, double=double, whole=whole, spent_ns=spent_ns, share=share, left_frac=left_frac),
        what_if=shorten_phases(case, COMPUTING, saved),
        least_frac=0.5,
    )


RULES = (
    Rule("debug_modes", knob="debug", effort="flag", judge=_judge_debug_modes),
    Rule("find_unused_parameters", knob="find_unused", effort="flag", judge=_judge_find_unused_parameters),
    Rule("data_parallel", knob="parallel", effort="code", judge=_judge_data_parallel),
    Rule("graph_breaks", knob="graph_breaks", effort="code", judge=_judge_graph_breaks),
    Rule("tf32_off", knob="precision", effort="flag", judge=_judge_tf32_off, muted_when_input_bound=True),
    Rule("amp_off", knob="precision", effort="semantics", judge=_judge_amp_off, muted_when_input_bound=True),
    Rule("float64", knob="precision", effort="code", judge=_judge_float64, muted_when_input_bound=True),
)
