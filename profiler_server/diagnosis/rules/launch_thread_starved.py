"""The thread that launches kernels queues for a processor while the device idles."""

from __future__ import annotations

from profiler_server.diagnosis.limits import DEVICE_IDLE_FRAC, QUEUED_FRAC
from profiler_server.diagnosis.seen import say_idle_share
from profiler_server.diagnosis.what_if import shorten_step
from profiler_server.diagnosis.wording import STEPS_PAGE
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.format import format_share


def _judge(case: Case) -> Finding | None:
    load, shares = case.host.load, case.device.shares
    queued = load.queued_frac if load is not None else None
    if not case.device.is_used or shares is None or queued is None:
        return None
    if queued < QUEUED_FRAC or shares.idle < DEVICE_IDLE_FRAC:
        return None
    lost_ns = min(queued, shares.unfed) * case.loading.loop.own_ns
    return Finding(
        title="The thread that launches kernels waits for a processor",
        measured=f"The training thread queued for a processor {format_share(queued)} of its time, and the device was idle "
        f"{say_idle_share(case)} of the step.",
        threshold=f"At least {format_share(QUEUED_FRAC)} of its time in the queue, with the device idle at least "
        f"{format_share(DEVICE_IDLE_FRAC)} of the step.",
        advice="Leave a core to the training thread: fewer workers, fewer threads in each worker, or other programs on other "
        "cores. One rank per GPU needs at least one core of its own.",
        change="torch.set_num_threads(1)  # in worker_init_fn; and num_workers below the number of cores",
        fix="a core for the training thread",
        evidence=(STEPS_PAGE,),
        what_if=shorten_step(case, "queue", lost_ns, 0.7),
        gain_range=(0.3, 1.3),
    )


RULE = Rule("launch_thread_starved", knob="threads", effort="argument", judge=_judge)
