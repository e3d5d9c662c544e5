"""A watched iterable whose items the training thread makes itself, between two steps."""

from __future__ import annotations

from profiler_server.diagnosis.facts import Case
from profiler_server.diagnosis.findings import Finding, Rule
from profiler_server.diagnosis.limits import INPUT_WAIT_FRAC, SEND_NS
from profiler_server.diagnosis.what_if import set_workers
from profiler_server.diagnosis.wording import STEPS_PAGE, say_wait
from profiler_server.format import format_duration, format_share, shorten_middle

_COMPUTES_FRAC = 0.5
_CHANGE = """class Ahead(torch.utils.data.IterableDataset):
    def __iter__(self):
        yield from read_batches()  # what makes your batches, opened here and not before

# batch_size=None: what is yielded is a batch already. More than one worker needs the work split by get_worker_info().
batches = torch.utils.data.DataLoader(Ahead(), batch_size=None, num_workers=1)
"""


def _judge(case: Case) -> Finding | None:
    loading = case.loading
    watched = loading.watched
    if watched is None or watched.reads_ahead is not False or not loading.is_input_bound:
        return None
    if loading.batch_ns < 3 * SEND_NS:
        return None
    name = shorten_middle(watched.dataset, 60)
    computes = loading.cpu_need >= _COMPUTES_FRAC
    beside = (
        "in a worker process: it computes, so a thread of Python would hold the training up as much."
        if computes
        else "in a worker process or in a thread with a queue: it mostly waits, and needs no processor for that."
    )
    return Finding(
        title="The training thread reads its own input",
        measured=f"{say_wait(case)} The input {name} takes {format_duration(loading.batch_ns)} per item, on a processor for "
        f"{format_share(loading.cpu_need)} of that, and the step waits meanwhile.",
        threshold=f"Nothing reads ahead, and more than {format_share(INPUT_WAIT_FRAC)} of the step waits for data.",
        advice=f"Read the next item while the step computes, {beside} If one reader is slower than the step, split the "
        "work among several DataLoader workers.",
        change=_CHANGE,
        fix="one reader ahead of the step",
        evidence=(STEPS_PAGE,),
        assumption="one reader beside the training",
        what_if=set_workers(case, 1),
        gain_range=(0.5, 1.05),
    )


RULE = Rule("watched_input", knob="workers", effort="code", judge=_judge)
