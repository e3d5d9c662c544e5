"""How many workers there are, and whether there are any: what starves for them, and what they take."""

from __future__ import annotations

from dataclasses import replace

from profiler_server.diagnosis.limits.facts import CAPPED_DEMAND_FRAC, CAPPED_NEED
from profiler_server.diagnosis.limits.loading import EMPTY_QUEUE_FRAC, READER_NEED, SEND_NS, WORKERS_BUSY_FRAC
from profiler_server.diagnosis.what_if import set_workers
from profiler_server.diagnosis.wording import (
    DATA_PAGE,
    STAGES_PAGE,
    say_input_limit,
    say_many_workers,
    say_wait,
    write_loader,
)
from profiler_server.facts.case import SIMULATED_GAIN, Case, Finding, Rule
from profiler_server.facts.loading import Choice, LoaderArguments
from profiler_server.facts.results import STEPS_PAGE, Abstention
from profiler_server.format import format_cores, format_duration, format_number_of, format_share, shorten_middle

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


def _choose_readers(case: Case) -> Choice | None:
    """Return how many workers would make the batches of the training thread; None where moving them costs as much."""
    return case.loading.choices.workers if case.loading.batch_ns >= 3 * SEND_NS else None


def _judge_no_workers(case: Case) -> Finding | None:
    """`num_workers=0`: every batch is made between two steps."""
    loader, choice = case.loading.loader, _choose_readers(case)
    # An imported trace names the iterator of the loader, and nothing else is known of that.
    is_alone = case.shows_no_workers if loader is None else not (loader.num_workers or case.loading.is_in_memory)
    if choice is None or not is_alone:
        return None
    workers = choice.workers
    start = f"Let {workers} worker process{'es' if workers > 1 else ''} make batches while the step computes"
    least = format_duration(case.steps.mean_ns - case.data_wait_ns)
    found = Finding(
        title="The training process loads its own data",
        measured=f"{say_wait(case)} The trace shows the iterator of a DataLoader with num_workers=0.",
        threshold=f"{say_input_limit(case)}, and num_workers=0.",
        advice=f"{start}; at best, with no wait left, a step takes {least}. The trace does not say how many cores there are.",
        change=f"DataLoader(\n    dataset,\n    num_workers={workers},  # was 0\n    persistent_workers=True,\n"
        "    # your other arguments as they are\n)",
        fix=f"num_workers 0 → {workers}",
        what_if=set_workers(case, workers),
        gain_range=(0.5, 1.05),
    )
    return found if loader is None else _tell_more(case, found, loader, choice, start)


def _tell_more(case: Case, found: Finding, loader: LoaderArguments, choice: Choice, start: str) -> Finding:
    """Return the finding with what a recording knows of the loader."""
    iterable, assumed = loader.style == "iterable", case.loading.loop.assumed
    change = write_loader(loader, num_workers=choice.workers, persistent_workers=True)
    made = f"Making a batch takes {format_duration(case.loading.batch_ns)}, and the step waits while it is made."
    return replace(
        found,
        measured=f"{say_wait(case)} {made}",
        advice=f"{start}: {choice.reason}.{say_many_workers(case, choice.workers)}{_SPLIT_ADVICE if iterable else ''}",
        change=(_SPLIT if iterable else "") + change,
        settings={"num_workers": choice.workers},
        evidence=(STAGES_PAGE, STEPS_PAGE),
        tier="R" if assumed else "M",
        gain_range=found.gain_range if assumed else SIMULATED_GAIN,
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


_ALIVE = " Keep them alive between epochs (persistent_workers=True): starting more of them takes longer."
_CONTESTED = (
    " All cores are in use now, so more workers take them from other programs: expect a smaller gain while those run."
)


def _judge_too_few_workers(case: Case) -> Finding | Abstention | None:
    """The workers are busy all the time and still late."""
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


def _judge_oversubscribed_workers(case: Case) -> Finding | None:
    """More workers than cores, all of them computing."""
    loader, batches, workers = case.loading.loader, case.loading.batches, case.loading.choices.fewer_workers
    if loader is None or batches is None or batches.cpu_ns is None or workers is None:
        return None
    if case.demand_frac < CAPPED_DEMAND_FRAC:
        return None
    return Finding(
        title="More workers than cores, and all of them compute",
        measured=f"{format_number_of(loader.num_workers, 'worker')} on {format_cores(case.host.cores)}; "
        f"{format_share(case.loading.cpu_need)} of their work is processor time.",
        threshold=f"More workers than cores, each needing a processor for more than {format_share(CAPPED_NEED)} of its work, and as "
        "fast with fewer. Workers that wait for storage do not count.",
        advice=f"With {format_number_of(workers, 'worker')} the simulated step is as short; it takes less memory and disturbs "
        "the training thread less.",
        change=write_loader(loader, num_workers=workers),
        fix=f"num_workers {loader.num_workers} → {workers}",
        evidence=(STAGES_PAGE,),
        severity="low",
    )


def _judge_workers_capped_by_cores(case: Case) -> Finding | None:
    """The workers need more processors than there are: more of them would not help."""
    loader, batches = case.loading.loader, case.loading.batches
    if loader is None or not loader.num_workers or batches is None or batches.cpu_ns is None:
        return None
    if not case.loading.is_input_bound or not case.is_capped or case.loading.bottleneck.stage is None:
        return None
    return Finding(
        title="The processors are the limit, not the number of workers",
        measured=f"{say_wait(case)} A worker keeps {format_share(case.loading.cpu_need)} of a core busy while it "
        f"makes a batch ({format_duration(case.loading.batch_ns)}); {min(case.demand_frac, 1.0) * case.host.cores:.1f} of {case.host.cores:g} cores "
        "are in use.",
        threshold=f"A worker per core or more, each needing a processor for more than {format_share(CAPPED_NEED)} of its work, and at "
        f"least {format_share(CAPPED_DEMAND_FRAC)} of the usable cores in use.",
        advice="More workers would only compete for the same cores. Make each sample cheaper (decode smaller images, resize "
        "before other transforms, store what every epoch computes again), or give the job more cores.",
        change="# store once what every epoch computes again, and read that:\n"
        "torch.save(preprocess(sample), cache_path)",
        fix="less processor work per sample",
        evidence=(STAGES_PAGE,),
        severity="medium",
    )


_ONE_AHEAD = """class Ahead(torch.utils.data.IterableDataset):
    def __iter__(self):
        yield from read_batches()  # what makes your batches, opened here and not before

# batch_size=None: what is yielded is a batch already
batches = torch.utils.data.DataLoader(Ahead(), batch_size=None, num_workers=1)
"""
_SEVERAL_AHEAD = """class Ahead(torch.utils.data.IterableDataset):
    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        mine = names[info.id :: info.num_workers]  # the part of the files or indices that this worker reads
        yield from read_batches(mine)

# batch_size=None: what is yielded is a batch already
batches = torch.utils.data.DataLoader(Ahead(), batch_size=None, num_workers={workers})
"""


def _judge_watched_input(case: Case) -> Finding | None:
    """A watched iterable whose items the training thread makes itself, between two steps."""
    watched, choice = case.loading.watched, _choose_readers(case)
    if watched is None or watched.reads_ahead is not False or choice is None:
        return None
    name = shorten_middle(watched.dataset, 60)
    workers = choice.workers
    return Finding(
        title="The training thread reads its own input",
        measured=f"{say_wait(case)} The training thread makes the items of {name} itself meanwhile, and is on a processor "
        f"for {format_share(watched.cpu_frac or 0.0)} of that time.",
        threshold=f"{say_input_limit(case)}, and nothing reads ahead.",
        advice=_advise_reader(choice, case.loading.cpu_need >= READER_NEED),
        change=_ONE_AHEAD if workers == 1 else _SEVERAL_AHEAD.format(workers=workers),
        fix="one reader ahead of the step" if workers == 1 else f"{workers} workers that read ahead",
        evidence=(STAGES_PAGE,),
        assumption="" if workers == 1 else "the work can be split among the workers",
        what_if=set_workers(case, workers),
        gain_range=(0.5, 1.05),
    )


def _advise_reader(choice: Choice, computes: bool) -> str:
    if choice.workers > 1:
        return (
            f"Let {choice.workers} worker processes of a DataLoader read while the step computes, each its own part of the "
            f"files or indices: {choice.reason}. One reader alone is slower than the step."
        )
    if computes:
        return (
            "Read the next item while the step computes, in a worker process: it computes, so a thread of Python would "
            "hold the training up as much."
        )
    return (
        "Read the next item while the step computes, in a worker process or in a thread with a queue: it mostly waits, and "
        "needs no processor for that."
    )


RULES = (
    Rule("no_workers", knob="workers", effort="argument", judge=_judge_no_workers),
    Rule("too_few_workers", knob="workers", effort="argument", judge=_judge_too_few_workers),
    Rule("oversubscribed_workers", knob="workers", effort="argument", judge=_judge_oversubscribed_workers),
    Rule("workers_capped_by_cores", knob="cores", effort="code", judge=_judge_workers_capped_by_cores),
    Rule("watched_input", knob="workers", effort="code", judge=_judge_watched_input),
)
