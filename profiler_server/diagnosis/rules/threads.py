"""How many threads compute, and where they run."""

from __future__ import annotations

from dataclasses import replace

from profiler_server.diagnosis.limits.host import (
    BUSY_THREADS_FRAC,
    COMPUTE_FRAC,
    PARALLEL_FRAC,
    SPARE_THREADS,
    THREADS_COMPUTE_FRAC,
    WORKER_CORES,
)
from profiler_server.diagnosis.what_if import shorten_phases, shorten_step
from profiler_server.diagnosis.wording import STAGES_PAGE
from profiler_server.facts.case import Case, Finding, Rule, WhatIf
from profiler_server.facts.steps import COMPUTING
from profiler_server.format import format_cores, format_duration, format_number_of, format_share


def _judge_threads_in_workers(case: Case) -> Finding | None:
    """Workers compute with several threads each, and together need more processors than there are."""
    loader, load = case.loading.loader, case.host.load
    if loader is None or not loader.num_workers or load is None or load.busiest_worker is None:
        return None
    crowded = case.lacks_processors and loader.num_workers * load.busiest_worker > case.host.cores
    if load.busiest_worker < WORKER_CORES or not crowded:
        return None
    return Finding(
        title="Workers compute with several threads each",
        measured=f"One worker keeps up to {load.busiest_worker:.1f} cores busy, and there are "
        f"{format_number_of(loader.num_workers, 'worker')} on {format_cores(case.host.cores)}.",
        threshold=f"A worker on at least {WORKER_CORES:g} cores, more of them than there are cores, and none is free.",
        advice="PyTorch gives each worker one thread; OpenCV, NumPy, Numba and the like start their own, as many as there "
        "are cores. One thread for each worker computes as much and disturbs the others less.",
        change="def start(worker):\n    cv2.setNumThreads(0)  # and OMP_NUM_THREADS=1 for NumPy and Numba\n\n"
        "DataLoader(..., worker_init_fn=start)",
        fix="one thread in each worker",
        evidence=(STAGES_PAGE,),
    )


def _judge_threads_over_cores(case: Case) -> Finding | None:
    """PyTorch computes with more threads than it has cores."""
    threads, usable = case.manifest.torch_threads, case.manifest.usable_cores
    if case.device.entries or threads is None or usable is None or threads <= max(1, round(usable)):
        return None
    share = case.steps.share(*COMPUTING)
    if share < THREADS_COMPUTE_FRAC:
        return None
    taken = case.host.load.others + case.host.load.workers if case.host.load is not None else 0.0
    wanted = max(1, int(usable - taken + 0.5))
    return Finding(
        title="More compute threads than cores",
        measured=f"torch uses {format_number_of(threads, 'thread')} on {format_cores(usable)}; forward, backward and update are "
        f"{format_share(share)} of the step.",
        threshold="More threads than cores that the process may use (counting affinity and container quota).",
        advice="At the end of every operator all threads wait for those that have no core. Use as many threads as there "
        "are cores left by the workers and by other programs.",
        change=f"torch.set_num_threads({wanted})  # was {threads}; or OMP_NUM_THREADS={wanted}",
        fix=format_number_of(wanted, "thread"),
        severity="medium",
        what_if=_stop_queueing(case, taken / usable),
        assumption="the main thread no longer queued for a processor",
        tier="R",
        gain_range=(0.4, 1.5),
    )


def _stop_queueing(case: Case, taken_frac: float) -> WhatIf | None:
    """Return the what-if of the main thread's waits for a processor that no one else takes; None where they are unknown.

    The other threads wait as well, and who waits for them spins: what is saved in all is known within a wide range.
    """
    load = case.host.load
    if load is None or load.queued_frac is None:
        return None
    queued_ns = load.queued_frac * case.steps.mean_ns * max(1.0 - taken_frac, 0.0)
    computing_ns = sum(case.steps.phases_ns[name] for name in COMPUTING)
    found = shorten_step(case, "phases", min(queued_ns, computing_ns), 1.0)
    return replace(found, touches={"phases": computing_ns})


_COMPUTED = ("forward", "backward")


def _judge_threads_too_few(case: Case) -> Finding | None:
    """PyTorch computes with far fewer threads than there are free cores."""
    threads, usable, load = case.manifest.torch_threads, case.manifest.usable_cores, case.host.load
    if case.device.entries or not threads or not usable or load is None or load.process is None:
        return None
    wanted = int(usable - load.others - load.workers)
    share = case.steps.share(*_COMPUTED)
    computing = case.steps.share(*_COMPUTED, "optimizer") * threads
    if wanted < SPARE_THREADS * threads or share < COMPUTE_FRAC or load.process < BUSY_THREADS_FRAC * computing:
        return None
    spent_ns = sum(case.steps.phases_ns[name] for name in _COMPUTED)
    return Finding(
        title="Cores are idle while few threads compute",
        measured=f"torch uses {format_number_of(threads, 'thread')}, {wanted} of {format_cores(usable)} are free for it; "
        f"forward and backward take {format_duration(spent_ns)}, {format_share(share)} of the {case.steps.noun}.",
        threshold=f"At least {SPARE_THREADS} times as many free cores as threads, forward and backward at least "
        f"{format_share(COMPUTE_FRAC)} of the {case.steps.noun}, and the threads are busy.",
        advice="How much it helps depends on the size of the operators: large products and convolutions scale, small ones "
        "do not. Try some numbers and keep the best.",
        change=f"torch.set_num_threads({wanted})  # was {threads}; or OMP_NUM_THREADS={wanted}",
        fix=format_number_of(wanted, "thread"),
        assumption="half of forward and backward ran on all threads",
        what_if=shorten_phases(case, _COMPUTED, PARALLEL_FRAC * (1.0 - threads / wanted)),
        gain_range=(0.3, 1.7),
    )


def _judge_numa(case: Case) -> Finding | None:
    """Threads that train on processors are spread over several memory nodes."""
    nodes, threads, usable = case.facts.get("numa_nodes"), case.manifest.torch_threads, case.manifest.usable_cores
    if not isinstance(nodes, int) or nodes < 2 or case.device.entries or not threads or not usable:
        return None
    share = case.steps.share(*COMPUTING)
    if threads <= usable / nodes or share < COMPUTE_FRAC:
        return None
    return Finding(
        title="Threads compute on several memory nodes",
        measured=f"torch uses {format_number_of(threads, 'thread')} on a machine with {nodes} memory nodes, and may use all of "
        f"them; computing is {format_share(share)} of the {case.steps.noun}.",
        threshold="More threads than one node has cores that the process may use.",
        advice="A thread reads memory of another node more slowly. Train one rank on each node, bound to its cores and its "
        "memory, and let them exchange gradients; or compare with one node alone.",
        change="numactl --cpunodebind=0 --membind=0 python train.py\n# or: torchrun --nproc-per-node=2, each rank bound to a node",
        fix="threads on one node",
    )


RULES = (
    Rule("threads_in_workers", knob="worker_threads", effort="flag", judge=_judge_threads_in_workers),
    Rule(
        "threads_over_cores",
        knob="threads",
        effort="flag",
        judge=_judge_threads_over_cores,
        muted_when_input_bound=True,
    ),
    Rule("threads_too_few", knob="threads", effort="flag", judge=_judge_threads_too_few, muted_when_input_bound=True),
    Rule("numa", knob="numa", effort="flag", judge=_judge_numa),
)
