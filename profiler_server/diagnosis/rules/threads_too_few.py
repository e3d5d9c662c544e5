"""PyTorch computes with far fewer threads than there are free cores."""

from __future__ import annotations

from profiler_server.diagnosis.limits import BUSY_THREADS_FRAC, COMPUTE_FRAC, PARALLEL_FRAC, SPARE_THREADS
from profiler_server.diagnosis.what_if import shorten_phases
from profiler_server.diagnosis.wording import STEPS_PAGE
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.format import format_cores, format_duration, format_number_of, format_share

_COMPUTED = ("forward", "backward")


def _judge(case: Case) -> Finding | None:
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
        evidence=(STEPS_PAGE,),
        assumption="half of forward and backward ran on all threads",
        what_if=shorten_phases(case, _COMPUTED, PARALLEL_FRAC * (1.0 - threads / wanted)),
        gain_range=(0.3, 1.7),
    )


RULE = Rule("threads_too_few", knob="threads", effort="flag", judge=_judge, muted_when_input_bound=True)
