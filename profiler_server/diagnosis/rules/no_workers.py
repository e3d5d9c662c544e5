"""`num_workers=0`: every batch is made between two steps."""

from __future__ import annotations

from profiler_server.diagnosis.limits import CAPPED_DEMAND_FRAC, SEND_NS
from profiler_server.diagnosis.what_if import set_workers
from profiler_server.diagnosis.wording import (
    STAGES_PAGE,
    STEPS_PAGE,
    say_input_limit,
    say_many_workers,
    say_wait,
    write_loader,
)
from profiler_server.facts.case import SIMULATED_GAIN, Case, Finding, Rule
from profiler_server.format import format_duration, format_share

_SPLIT = """# An IterableDataset is read whole by every worker, unless its __iter__ splits the work. Split what is cheap
# (file names, indices), before the work on each sample: one that is made and then skipped costs as much.
#     info = torch.utils.data.get_worker_info()
#     if info is not None:
#         names = itertools.islice(names, info.id, None, info.num_workers)
"""
_SPLIT_ADVICE = (
    " This dataset is an IterableDataset: split the samples among the workers first, before the "
    "work on them (see the code), or every worker yields all of them, and an epoch becomes that many times longer."
)


def _judge(case: Case) -> Finding | None:
    loader = case.loading.loader
    if loader is None:
        return _judge_trace(case)
    if loader.num_workers or case.loading.is_in_memory:
        return None
    choice = case.loading.choices.workers
    if choice is None or case.loading.batch_ns < 3 * SEND_NS:
        return None
    workers = choice.workers
    iterable = loader.style == "iterable"
    return Finding(
        title="The training process loads its own data",
        measured=f"{say_wait(case)} Making a batch takes {format_duration(case.loading.batch_ns)}, and the step waits while it is made.",
        threshold=f"{say_input_limit(case)}, and num_workers=0.",
        advice=f"Let {workers} worker process{'es' if workers > 1 else ''} make batches while the step computes: {choice.reason}."
        + say_many_workers(case, workers)
        + (_SPLIT_ADVICE if iterable else ""),
        change=(_SPLIT if iterable else "") + write_loader(loader, num_workers=workers, persistent_workers=True),
        fix=f"num_workers 0 → {workers}",
        settings={"num_workers": workers},
        evidence=(STAGES_PAGE, STEPS_PAGE),
        what_if=set_workers(case, workers),
        tier="R" if case.loading.loop.assumed else "M",
        gain_range=(0.5, 1.05) if case.loading.loop.assumed else SIMULATED_GAIN,
        otherwise=_say_no_processor(case) if case.demand_frac >= CAPPED_DEMAND_FRAC else None,
    )


def _say_no_processor(case: Case) -> Finding:
    """State the fact: who sees a wait for data and num_workers=0 thinks of workers first."""
    cores, busy = case.host.cores, format_share(min(case.demand_frac, 1.0))
    processors = "one processor is" if cores == 1 else f"{cores:g} processors are"
    return Finding(
        title="Worker processes would gain nothing that is sure here",
        measured=f"{say_wait(case)} num_workers=0, and the {processors} busy {busy} of the time.",
        threshold=f"At least {format_share(CAPPED_DEMAND_FRAC)} of the usable processors in use, and no gain of workers "
        "that is sure.",
        advice="Workers would take the processors from the training. With free ones they would make batches while it "
        "computes.",
        change="nproc; uptime  # how many processors there are, and how many programs want one",
        fix="no change of num_workers",
        evidence=(STAGES_PAGE, STEPS_PAGE),
    )


def _judge_trace(case: Case) -> Finding | None:
    """Judge an imported trace, which names the iterator of the loader and knows nothing else of it."""
    choice = case.loading.choices.workers
    if choice is None or not case.shows_no_workers or case.loading.batch_ns < 3 * SEND_NS:
        return None
    workers = choice.workers
    least = format_duration(case.steps.mean_ns - case.data_wait_ns)
    return Finding(
        title="The training process loads its own data",
        measured=f"{say_wait(case)} The trace shows the iterator of a DataLoader with num_workers=0.",
        threshold=f"{say_input_limit(case)}, and num_workers=0.",
        advice=f"Let {workers} worker process{'es' if workers > 1 else ''} make batches while the step computes; at best, "
        f"with no wait left, a step takes {least}. The trace does not say how many cores there are.",
        change=f"DataLoader(\n    dataset,\n    num_workers={workers},  # was 0\n    persistent_workers=True,\n"
        "    # your other arguments as they are\n)",
        fix=f"num_workers 0 → {workers}",
        evidence=(STEPS_PAGE,),
        what_if=set_workers(case, workers),
        gain_range=(0.5, 1.05),
    )


RULE = Rule("no_workers", knob="workers", effort="argument", judge=_judge)
