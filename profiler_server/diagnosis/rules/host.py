"""What the host, its clocks or its other work take from a run."""

from __future__ import annotations

from profiler_server.diagnosis.limits.facts import NOISY_FRAC
from profiler_server.diagnosis.limits.host import (
    CLOCK_LOST_FRAC,
    MEMORY_STALL_FRAC,
    PYTHON_CORES,
    RECORDING_FRAC,
    RECORDING_LARGE_FRAC,
    THROTTLED_FRAC,
)
from profiler_server.diagnosis.what_if import shorten_step
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.facts.results import Abstention, Evidence
from profiler_server.format import format_cores, format_duration, format_share


def _judge_noisy_host(case: Case) -> Finding | None:
    """Other programs used the processors while the run was recorded."""
    load, share = case.host.load, case.host.others_frac
    if load is None or share < NOISY_FRAC:
        return None
    return Finding(
        title="Other programs share this host",
        measured=f"Other programs used {load.others:.1f} of the {format_cores(case.host.cores)} that this run may use "
        f"({format_share(share)}) on average.",
        threshold=f"{format_share(NOISY_FRAC)} of the cores or more. Every other rule asks for a larger gain here, and "
        "ranges are wider.",
        advice="Step times vary with what else runs. Measure again on a quiet host before trusting small differences.",
        change="uptime; top -o %CPU  # see what else runs",
        fix="a quiet host",
    )


def _judge_cgroup_throttling(case: Case) -> Finding | None:
    """The control group of the job uses up its quota of processor time, and is stopped until the next period."""
    load = case.host.load
    if load is None or load.throttled_frac is None or load.throttled_cores is None:
        return None
    # The group is stopped processor by processor: at least this part of the time, all of them are.
    processors = max(case.manifest.cpu_count or case.host.cores, 1)
    stopped = min(load.throttled_frac, load.throttled_cores / processors)
    if stopped < THROTTLED_FRAC:
        return None
    return Finding(
        title="The container is stopped for using up its processor time",
        measured=f"In {format_share(load.throttled_frac)} of its periods the control group used up its quota "
        f"({format_cores(case.host.cores)}) and was stopped; on average {load.throttled_cores:.1f} processors stood still.",
        threshold=f"Stopped for at least {format_share(THROTTLED_FRAC)} of the time.",
        advice="Give the job more processor time (in Kubernetes, raise or drop the CPU limit), or let it use less: threads "
        "and workers together no more than the quota has cores, or all of them are stopped at once.",
        change=f"torch.set_num_threads({max(1, int(case.host.cores))})\n"
        "# Kubernetes: resources.limits.cpu; docker run --cpus; systemd: CPUQuota",
        fix="a quota that is not used up",
        assumption="the job is stopped no more",
        what_if=shorten_step(case, "stopped", stopped * case.steps.mean_ns, 0.8),
        gain_range=(0.5, 1.25),
    )


_LESS_MEMORY = (
    "The system throws out what it needs again, files of the data set first. Use fewer workers or a smaller prefetch_factor, "
    "keep data in arrays rather than in Python lists, which every worker copies in time, or ask for more memory."
)


def _judge_memory_pressure(case: Case) -> Finding | None:
    """Memory is short: processes wait for pages that were just thrown out."""
    load = case.host.load
    if load is None:
        return None
    stalled = load.memory_stall_frac if load.memory_stall_frac is not None else load.system_stall_frac
    if stalled is None or stalled < MEMORY_STALL_FRAC:
        return None
    # Of the whole system it is not known whether this training was the one that waited.
    is_own = load.memory_stall_frac is not None
    where = "in the control group of this training" if is_own else "on this host, this training or another program,"
    return Finding(
        title="Memory is short",
        measured=f"For {format_share(stalled)} of the time something {where} waited for memory.",
        threshold=f"At least {format_share(MEMORY_STALL_FRAC)} of the time.",
        advice=_LESS_MEMORY,
        change="loader = DataLoader(dataset, num_workers=2, prefetch_factor=2)  # each worker holds prefetch_factor batches",
        fix="enough memory",
        evidence=(Evidence("memory", "", "Memory of the processes over the steps"),),
        assumption="training itself waited in two thirds of that time" if is_own else "",
        what_if=shorten_step(case, "memory", stalled * case.steps.mean_ns, 0.65) if is_own else None,
        gain_range=(0.5, 1.5),
    )


_MOST_NAMES = 3


def _judge_gil_contention(case: Case) -> Finding | Abstention | None:
    """Other Python threads of the training process compute, and the training thread waits for the interpreter meanwhile."""
    load = case.host.load
    used = load.python_threads if load is not None else None
    if load is None or used is None or used < PYTHON_CORES or case.device.is_used:
        return None  # on a device the training thread also waits for that
    if load.main_thread is None:
        return Abstention("gil_contention", "how long the training thread was on a processor", "Record on Linux.")
    known = load.main_thread + (load.queued_frac or 0.0) + case.steps.share("data_wait", "communication")
    blocked = min(1.0 - known, used, 1.0)
    if blocked < PYTHON_CORES:
        return None  # the training thread ran all the while: the others let the interpreter go
    return Finding(
        title="The training thread waits for other Python threads",
        measured=f"Other Python threads of the process{_list_names(case)} were on a processor for {format_share(used)} of one "
        f"core, and the training thread stood still for {format_share(1.0 - known)} of the time, waiting for neither data nor "
        "a processor. Only one thread of a process runs Python at a time.",
        threshold=f"Both at least {format_share(PYTHON_CORES)}, on a host without a device.",
        advice="The training thread asks for the interpreter after each operator, and a thread that computes in Python keeps "
        "it for up to 5 ms. Move that work into a process, such as a DataLoader worker, or into code that lets the "
        "interpreter go, such as NumPy.",
        change="with concurrent.futures.ProcessPoolExecutor() as pool:  # instead of a thread\n    pool.submit(work, item)",
        fix="other Python work in a process of its own",
        assumption="it stood still for the interpreter",
        what_if=shorten_step(case, "interpreter", blocked * case.steps.mean_ns, 0.8),
        gain_range=(0.4, 1.2),
    )


def _list_names(case: Case) -> str:
    noted = case.facts.get("python_threads")
    entries = [entry for entry in noted if isinstance(entry, dict)] if isinstance(noted, list) else []
    names = list(dict.fromkeys(str(entry.get("name", ""))[:60] for entry in entries))[:_MOST_NAMES]
    return f" ({', '.join(names)})" if names else ""


def _judge_clock_throttle(case: Case) -> Finding | Abstention | None:
    """Heat, or another limit of the hardware, holds the clock of a GPU down."""
    held = case.device.held_clock
    if held is None or held.lost_frac < CLOCK_LOST_FRAC:
        return None
    shares = case.device.shares
    if shares is None:
        how = "Record with a detailed window: Profiler(window=…)."
        return Abstention("clock_throttle", "how much of the step the device computes", how)
    lost_ns = held.lost_frac * shares.compute * case.steps.mean_ns
    why = "heat" if held.is_heat else "a limit of the hardware"
    return Finding(
        title=f"The clock of {held.gpu} is held down by {why}",
        measured=f"In {format_share(held.held_frac)} of the samples {why} held it at {held.clock_hz / 1e6:.0f} MHz; otherwise it "
        f"reaches {held.usual_hz / 1e6:.0f} MHz. The device computes {format_share(shares.compute)} of the {case.steps.noun}.",
        threshold=f"At least {format_share(CLOCK_LOST_FRAC)} of the clock lost over all samples.",
        advice="Look at its cooling and at what else warms the machine: fans, dust, neighbours, the room. A lower power limit "
        "keeps a hot device at a steadier clock.",
        change="nvidia-smi -q -d TEMPERATURE,CLOCK,PERFORMANCE",
        fix="a device that stays cool",
        evidence=(Evidence("device", "", "Clock and temperature over the steps"),),
        assumption="kernels are as much faster as the clock",
        what_if=shorten_step(case, "kernels", lost_ns, 1.0),
        gain_range=(0.4, 1.1),
    )


def _judge_collector_overhead(case: Case) -> Finding | None:
    """Recording itself costs a noticeable part of the step."""
    overhead = case.manifest.overhead
    if overhead.share_frac is None or overhead.share_frac < RECORDING_FRAC:
        return None
    return Finding(
        title="Recording slows this run down",
        measured=f"Recording takes {format_duration(overhead.training_thread_ns_per_step)} of the training thread per "
        f"step ({format_share(overhead.share_frac)}); {overhead.how}.",
        threshold=f"At least {format_share(RECORDING_FRAC)} of the step.",
        advice="Collect less: the steps of this run are longer by about that much than without recording.",
        change='Profiler(output_path, level="important", data_pipeline=False)',
        fix="collecting less",
        severity="low" if overhead.share_frac >= RECORDING_LARGE_FRAC else "info",
    )


RULES = (
    Rule("noisy_host", knob="host", effort="semantics", judge=_judge_noisy_host),
    Rule("cgroup_throttling", knob="quota", effort="flag", judge=_judge_cgroup_throttling),
    Rule("memory_pressure", knob="memory_pressure", effort="argument", judge=_judge_memory_pressure),
    Rule("gil_contention", knob="interpreter", effort="code", judge=_judge_gil_contention),
    Rule("clock_throttle", knob="clock", effort="code", judge=_judge_clock_throttle),
    Rule("collector_overhead", knob="collector", effort="argument", judge=_judge_collector_overhead),
)
