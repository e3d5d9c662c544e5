"""What keeps the host from launching the next kernel in time."""

from __future__ import annotations

from profiler_server.diagnosis.limits.device import DEVICE_IDLE_FRAC, LAUNCH_IDLE_FRAC
from profiler_server.diagnosis.limits.facts import DISPATCH_FRAC, QUEUED_FRAC
from profiler_server.diagnosis.what_if import predict_or, say_idle_share, shorten_step
from profiler_server.diagnosis.wording import OPERATORS_PAGE
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.facts.results import Abstention
from profiler_server.format import format_share

_LEFT_OUT = ", the wait for data left out"


def _judge_launch_bound(case: Case) -> Finding | Abstention | None:
    """The device runs out of work because the host cannot launch kernels fast enough."""
    if not case.device.is_used:
        return None
    device = case.device.shares
    if device is None:
        imported = "Trace with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]."
        how = imported if case.is_imported else 'Record with Profiler(window="auto").'
        return Abstention("launch_bound", "when kernels ran on the device", how)
    launches = max(0.0, device.unfed - case.loading.wait_frac)  # a wait for data is no launch
    host = launches / device.idle if device.idle else 0.0
    if device.idle < DEVICE_IDLE_FRAC or host <= LAUNCH_IDLE_FRAC or not case.device.is_dispatching:
        return None
    own_frac = 1.0 - case.loading.wait_frac
    unfed_ns = launches * own_frac * case.loading.loop.regular_step_ns
    finding = Finding(
        title="The host launches kernels slower than the device runs them",
        measured=f"The device is idle {say_idle_share(case)} of the step: {format_share(launches)} of the step "
        f"it waits for the host to launch the next kernel{_LEFT_OUT if case.loading.wait_frac else ''}.",
        threshold=f"The device is idle at least {format_share(DEVICE_IDLE_FRAC)} of the step, it waits for launches for "
        f"more than {format_share(LAUNCH_IDLE_FRAC)} of that time, and the host is in operators for at least "
        f"{format_share(DISPATCH_FRAC)} of the step.",
        advice="Launch fewer and larger kernels: compile the model (CUDA graphs with mode='reduce-overhead'), or use a "
        "larger batch.",
        change='model = torch.compile(model, mode="reduce-overhead")',
        fix="torch.compile with CUDA graphs",
        evidence=(OPERATORS_PAGE,),
        what_if=shorten_step(case, "launches", unfed_ns, 0.7),
        gain_range=(0.3, 1.3),
    )
    return predict_or(case, finding, "launches", "launches")


def _judge_launch_thread_starved(case: Case) -> Finding | None:
    """The thread that launches kernels queues for a processor while the device idles."""
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
        what_if=shorten_step(case, "queue", lost_ns, 0.7),
        gain_range=(0.3, 1.3),
    )


RULES = (
    Rule("launch_bound", knob="launch", effort="flag", judge=_judge_launch_bound, muted_when_input_bound=True),
    Rule("launch_thread_starved", knob="threads", effort="argument", judge=_judge_launch_thread_starved),
)
