"""The workers are busy all the time and still late."""

from __future__ import annotations

from profiler_server.diagnosis.limits import CAPPED_DEMAND_FRAC, CAPPED_NEED, EMPTY_QUEUE_FRAC, WORKERS_BUSY_FRAC
from profiler_server.diagnosis.what_if import set_workers
from profiler_server.diagnosis.wording import DATA_PAGE, STAGES_PAGE, say_many_workers, say_wait, write_loader
from profiler_server.facts.case import SIMULATED_GAIN, Case, Finding, Rule
from profiler_server.facts.results import Abstention
from profiler_server.format import format_cores, format_duration, format_number_of, format_share

_ALIVE = " Keep them alive between epochs (persistent_workers=True): starting more of them takes longer."
_CONTESTED = (
    " All cores are in use now, so more workers take them from other programs: expect a smaller gain while those run."
)


def _judge(case: Case) -> Finding | Abstention | None:
    loader = case.loading.loader
    if not case.loading.is_input_bound:
        return None
    has_workers = loader.num_workers if loader is not None else case.facts.get("data_loader") == "workers"
    if not has_workers:
        return None
    if loader is None or case.loading.batches is None:
        return Abstention(
            "too_few_workers", "how long the workers take per batch", "Record with Profiler(data_pipeline=True)."
        )
    busy = case.loading.batch_ns * case.loading.loop.fetches / (loader.num_workers * case.loading.loop.regular_step_ns)
    if case.loading.not_ready_frac <= EMPTY_QUEUE_FRAC or busy < WORKERS_BUSY_FRAC:
        return None
    choice = case.loading.choices.workers
    if choice is None:
        return None
    workers = choice.workers
    if case.is_capped or case.loading.is_capped_by_storage or workers <= loader.num_workers:
        return None
    contested = case.demand_frac >= CAPPED_DEMAND_FRAC and case.loading.cpu_need > CAPPED_NEED
    guessed = contested or case.loading.loop.assumed
    return Finding(
        title="More workers would keep up",
        measured=f"{say_wait(case)} The next batch was missing in {format_share(case.loading.not_ready_frac)} of the requests; "
        f"a batch takes {format_duration(case.loading.batch_ns)}, so {_say_workers(loader.num_workers)} busy for "
        f"{format_share(min(busy, 1.0))} of a usual {case.steps.noun}.",
        threshold=f"The next batch is missing in more than {format_share(EMPTY_QUEUE_FRAC)} of the requests, and the workers are busy for "
        f"at least {format_share(WORKERS_BUSY_FRAC)} of a usual {case.steps.noun}.",
        advice=f"Use {format_number_of(workers, 'worker')}: {choice.reason}, on {format_cores(case.host.cores)}. "
        f"A worker keeps {format_share(case.loading.cpu_need)} of a core busy."
        + say_many_workers(case, workers)
        + ("" if loader.persistent_workers else _ALIVE)
        + (_CONTESTED if contested else ""),
        change=write_loader(
            loader, num_workers=workers, **({} if loader.persistent_workers else {"persistent_workers": True})
        ),
        fix=f"num_workers {loader.num_workers} → {workers}",
        settings={"num_workers": workers},
        evidence=(DATA_PAGE, STAGES_PAGE),
        what_if=set_workers(case, workers),
        tier="R" if guessed else "M",
        gain_range=(0.3 if contested else 0.5, 1.05) if guessed else SIMULATED_GAIN,
    )


def _say_workers(workers: int) -> str:
    return "the one worker is" if workers == 1 else f"the {workers} workers are"


RULE = Rule("too_few_workers", knob="workers", effort="argument", judge=_judge)
