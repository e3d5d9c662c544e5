"""A watched iterable whose items the training thread makes itself, between two steps."""

from __future__ import annotations

from profiler_server.diagnosis.limits import SEND_NS
from profiler_server.diagnosis.what_if import set_workers
from profiler_server.diagnosis.wording import STAGES_PAGE, say_input_limit, say_wait
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.facts.loading import Choice
from profiler_server.format import format_share, shorten_middle

_COMPUTES_FRAC = 0.5
_ONE = """class Ahead(torch.utils.data.IterableDataset):
    def __iter__(self):
        yield from read_batches()  # what makes your batches, opened here and not before

# batch_size=None: what is yielded is a batch already
batches = torch.utils.data.DataLoader(Ahead(), batch_size=None, num_workers=1)
"""
_SEVERAL = """class Ahead(torch.utils.data.IterableDataset):
    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        mine = names[info.id :: info.num_workers]  # the part of the files or indices that this worker reads
        yield from read_batches(mine)

# batch_size=None: what is yielded is a batch already
batches = torch.utils.data.DataLoader(Ahead(), batch_size=None, num_workers={workers})
"""


def _judge(case: Case) -> Finding | None:
    loading = case.loading
    watched = loading.watched
    choice = loading.choices.workers
    if watched is None or watched.reads_ahead is not False or choice is None:
        return None
    if loading.batch_ns < 3 * SEND_NS:
        return None
    name = shorten_middle(watched.dataset, 60)
    workers = choice.workers
    return Finding(
        title="The training thread reads its own input",
        measured=f"{say_wait(case)} The training thread makes the items of {name} itself meanwhile, and is on a processor "
        f"for {format_share(watched.cpu_frac or 0.0)} of that time.",
        threshold=f"{say_input_limit(case)}, and nothing reads ahead.",
        advice=_advise(choice, loading.cpu_need >= _COMPUTES_FRAC),
        change=_ONE if workers == 1 else _SEVERAL.format(workers=workers),
        fix="one reader ahead of the step" if workers == 1 else f"{workers} workers that read ahead",
        evidence=(STAGES_PAGE,),
        assumption="" if workers == 1 else "the work can be split among the workers",
        what_if=set_workers(case, workers),
        gain_range=(0.5, 1.05),
    )


def _advise(choice: Choice, computes: bool) -> str:
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


RULE = Rule("watched_input", knob="workers", effort="code", judge=_judge)
