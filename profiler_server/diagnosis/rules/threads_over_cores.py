"""PyTorch computes with more threads than it has cores."""

from __future__ import annotations

from profiler_server.diagnosis.facts import Case
from profiler_server.diagnosis.findings import Finding, Rule
from profiler_server.diagnosis.limits import THREADS_COMPUTE_FRAC
from profiler_server.diagnosis.wording import STEPS_PAGE
from profiler_server.format import format_cores, format_number_of, format_share


def _judge(case: Case) -> Finding | None:
    threads, usable = case.manifest.torch_threads, case.manifest.usable_cores
    if case.manifest.devices or threads is None or usable is None or threads <= max(1, round(usable)):
        return None
    share = case.steps.share("forward", "backward", "optimizer")
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
    )


RULE = Rule("threads_over_cores", knob="threads", effort="flag", judge=_judge, muted_when_input_bound=True)
