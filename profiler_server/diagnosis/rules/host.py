"""The costs to a run of the host, its clocks and its other work; and the number and place of the computing threads."""

from __future__ import annotations

from dataclasses import replace

from collector.format.phases import COMPUTING
from profiler_server.diagnosis.limits import host as limits
from profiler_server.diagnosis.limits.facts import NOISY_FRAC
from profiler_server.diagnosis.what_if import measure_still, shorten_step
from profiler_server.facts.case import Abstention, Case, Evidence, Finding, Rule, WhatIf
from profiler_server.words.phrases import FUNCTIONS, STAGES_PAGE, describe, find_dominant, name_parts, say_functions


def _judge_noisy_host(case: Case) -> Finding | None:
    """Other programs used the processors while the run was recorded."""
    load, share = case.host.load, case.host.others_frac
    if load is None or share < NOISY_FRAC:
        return None
    return Finding(describe(case, "noisy_host", share=share))


def _judge_cgroup_throttling(case: Case) -> Finding | None:
    """The control group of the job uses up its quota of processor time, and is stopped until the next period."""
    load = case.host.load
    if load is None or load.throttled_frac is None or load.throttled_cores is None:
        return None
    # The group is stopped one processor at a time. All processors together are stopped at least this share of the time.
    processors = max(case.manifest.cpu_count or case.host.cores, 1)
    stopped = min(load.throttled_frac, load.throttled_cores / processors)
    if stopped < limits.THROTTLED_FRAC:
        return None
    return Finding(
        describe(case, "cgroup_throttling", threads=max(1, int(case.host.cores))),
        what_if=shorten_step(case, "stopped", stopped * case.steps.mean_ns, 0.8),
        least_frac=0.5,
    )


def _judge_memory_pressure(case: Case) -> Finding | None:
    """Memory is short: processes wait for pages that the system has just evicted."""
    load = case.host.load
    if load is None:
        return None
    stalled = load.memory_stall_frac if load.memory_stall_frac is not None else load.system_stall_frac
    if stalled is None or stalled < limits.MEMORY_STALL_FRAC:
        return None
    # A value of the whole system does not show whether this training waited.
    is_own = load.memory_stall_frac is not None
    return Finding(
        describe(case, "memory_pressure.own" if is_own else "memory_pressure", stalled=stalled),
        evidence=(Evidence("memory", "", "Memory of the processes over the steps"),),
        what_if=shorten_step(case, "memory", stalled * case.steps.mean_ns, 0.65) if is_own else None,
        least_frac=0.5,
    )


_MOST_NAMES = 3


def _judge_gil_contention(case: Case) -> Finding | Abstention | None:
    """Other Python threads of the training process compute, and the recorded thread waits for the interpreter meanwhile."""
    load = case.host.load
    used = load.python_threads if load is not None else None
    if load is None or used is None or used < limits.PYTHON_CORES or case.device.is_used:
        return None  # with a device, the recorded thread also waits for the device
    still_frac = measure_still(case)
    if still_frac is None:
        return Abstention("gil_contention", "how long the recorded thread was on a processor", "Record on Linux.")
    blocked = min(still_frac, used, 1.0)
    if blocked < limits.PYTHON_CORES:
        return None  # the recorded thread ran all the time, so the others release the interpreter
    part = case.stacks.stages[("beside", "threads")] if case.stacks is not None else None
    function = find_dominant(part)
    text = describe(
        case,
        "gil_contention" if function is None else "gil_contention.named",
        names=_list_names(case),
        used=used,
        still_frac=still_frac,
        functions=say_functions(part, "what they ran meanwhile"),
        **({} if function is None else name_parts(function)),
    )
    found = Finding(
        text,
        what_if=shorten_step(case, "interpreter", blocked * case.steps.mean_ns, 0.8),
        least_frac=0.4,
    )
    return found if function is None else replace(found, evidence=(FUNCTIONS,))


def _list_names(case: Case) -> str:
    noted = case.facts.get("python_threads")
    entries = [entry for entry in noted if isinstance(entry, dict)] if isinstance(noted, list) else []
    names = list(dict.fromkeys(str(entry.get("name", ""))[:60] for entry in entries))[:_MOST_NAMES]
    return f" ({', '.join(names)})" if names else ""


def _judge_clock_throttle(case: Case) -> Finding | Abstention | None:
    """Heat, or another limit of the hardware, holds the clock of a GPU down."""
    held = case.device.held_clock
    if held is None or held.lost_frac < limits.CLOCK_LOST_FRAC:
        return None
    shares = case.device.shares
    if shares is None:
        how = "Record with a detailed window: Profiler(window=…)."
        return Abstention("clock_throttle", "how much of the step the device computes", how)
    lost_ns = held.lost_frac * shares.compute * case.steps.mean_ns
    mhz = {"held_mhz": held.clock_hz / 1e6, "usual_mhz": held.usual_hz / 1e6}
    why = "heat" if held.is_heat else "a limit of the hardware"
    return Finding(
        describe(case, "clock_throttle", held=held, why=why, shares=shares, **mhz),
        evidence=(Evidence("device", "", "Clock and temperature over the steps"),),
        what_if=shorten_step(case, "kernels", lost_ns, 1.0),
        least_frac=0.4,
    )


def _judge_collector_overhead(case: Case) -> Finding | None:
    """Recording itself costs a noticeable part of the step."""
    overhead = case.manifest.overhead
    if overhead.share_frac is None or overhead.share_frac < limits.RECORDING_FRAC:
        return None
    return Finding(
        describe(case, "collector_overhead"),
        severity="low" if overhead.share_frac >= limits.RECORDING_LARGE_FRAC else "info",
    )


def _judge_threads_in_workers(case: Case) -> Finding | None:
    """Workers compute with several threads each, and together need more processors than there are."""
    loader, load = case.loading.loader, case.host.load
    if loader is None or not loader.num_workers or load is None or load.busiest_worker is None:
        return None
    crowded = case.lacks_processors and loader.num_workers * load.busiest_worker > case.host.cores
    if load.busiest_worker < limits.WORKER_CORES or not crowded:
        return None
    return Finding(
        describe(case, "threads_in_workers"),
        evidence=(STAGES_PAGE,),
    )


def _judge_threads_over_cores(case: Case) -> Finding | None:
    """PyTorch computes with more threads than it has cores."""
    threads, usable = case.manifest.torch_threads, case.manifest.usable_cores
    if case.device.entries or threads is None or usable is None or threads <= max(1, round(usable)):
        return None
    share = case.steps.share(*COMPUTING)
    if share < limits.THREADS_COMPUTE_FRAC:
        return None
    taken = case.host.load.others + case.host.load.workers if case.host.load is not None else 0.0
    wanted = max(1, int(usable - taken + 0.5))
    return Finding(
        describe(case, "threads_over_cores", threads=threads, wanted=wanted, share=share),
        severity="medium",
        what_if=_stop_queueing(case, taken / usable),
        least_frac=0.4,
    )


def _stop_queueing(case: Case, taken_frac: float) -> WhatIf | None:
    """Return the what-if without the recorded thread's waits for a processor; None if these waits are unknown.

    Waits for processors that others use (`taken_frac`) remain. The other threads of PyTorch also queue, and a thread
    that waits for them spins. So the whole saving is known only within a wide range.
    """
    load = case.host.load
    if load is None or load.queued_frac is None:
        return None
    queued_ns = load.queued_frac * case.steps.mean_ns * max(1.0 - taken_frac, 0.0)
    computing_ns = sum(case.steps.phases_ns[name] for name in COMPUTING)
    found = shorten_step(case, "phases", min(queued_ns, computing_ns), 1.0)
    return replace(found, touches={"phases": computing_ns})


def _judge_numa(case: Case) -> Finding | None:
    """Threads that train on processors are spread over several memory nodes."""
    nodes, threads, usable = case.facts.get("numa_nodes"), case.manifest.torch_threads, case.manifest.usable_cores
    if not isinstance(nodes, int) or nodes < 2 or case.device.entries or not threads or not usable:
        return None
    share = case.steps.share(*COMPUTING)
    if threads <= usable / nodes or share < limits.COMPUTE_FRAC:
        return None
    return Finding(describe(case, "numa", nodes=nodes, share=share))


RULES = (
    Rule("noisy_host", knob="host", effort="semantics", judge=_judge_noisy_host),
    Rule("cgroup_throttling", knob="quota", effort="flag", judge=_judge_cgroup_throttling),
    Rule("memory_pressure", knob="memory_pressure", effort="argument", judge=_judge_memory_pressure),
    Rule("gil_contention", knob="interpreter", effort="code", judge=_judge_gil_contention),
    Rule("clock_throttle", knob="clock", effort="code", judge=_judge_clock_throttle),
    Rule("collector_overhead", knob="collector", effort="argument", judge=_judge_collector_overhead),
    Rule("threads_in_workers", knob="worker_threads", effort="flag", judge=_judge_threads_in_workers),
    Rule(
        "threads_over_cores",
        knob="threads",
        effort="flag",
        judge=_judge_threads_over_cores,
        muted_when_input_bound=True,
    ),
    Rule("numa", knob="numa", effort="flag", judge=_judge_numa),
)
