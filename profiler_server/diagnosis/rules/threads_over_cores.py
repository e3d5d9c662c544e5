"""PyTorch computes with more threads than it has cores."""

from __future__ import annotations

from dataclasses import replace

from profiler_server.diagnosis.limits import THREADS_COMPUTE_FRAC
from profiler_server.diagnosis.what_if import shorten_step
from profiler_server.diagnosis.wording import STEPS_PAGE
from profiler_server.facts.case import Case, Finding, Rule, WhatIf
from profiler_server.facts.steps import COMPUTING
from profiler_server.format import format_cores, format_number_of, format_share


def _judge(case: Case) -> Finding | None:
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
        evidence=(STEPS_PAGE,),
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


RULE = Rule("threads_over_cores", knob="threads", effort="flag", judge=_judge, muted_when_input_bound=True)
