"""The workers keep up, on processors that the step then queues for; the work that takes most of them is named."""

from __future__ import annotations

from profiler_server.diagnosis.limits import CAPPED_DEMAND_FRAC, CROWDED_FRAC
from profiler_server.diagnosis.named import blame_function, find_in_stage, say_functions
from profiler_server.diagnosis.what_if import scale_stages
from profiler_server.diagnosis.wording import STAGES_PAGE
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.facts.results import Abstention
from profiler_server.format import format_bytes, format_duration, format_share

_STAGES = ("read", "transform", "collate")
_DOING = {"read": "reading", "transform": "transforms", "collate": "collating"}
_CHEAPER = {
    "read": "read fewer and larger pieces, in a form that needs no decoding, or keep what every epoch reads in memory",
    "transform": "store what every epoch computes again, or compute on whole batches instead of single values",
    "collate": "stack tensors of one shape, without a Python loop over their elements",
}
_CODE = {
    "read": "numpy.save('all.npy', numpy.stack([load(path) for path in paths]))  # once\n"
    "self.samples = numpy.load('all.npy', mmap_mode='r')  # in the dataset",
    "transform": "torch.save(transform(sample), cache_path)  # once, instead of in every epoch",
    "collate": "def collate(samples):\n    inputs, targets = zip(*samples)\n"
    "    return torch.stack(inputs), torch.as_tensor(targets)",
}


def _judge(case: Case) -> Finding | Abstention | None:
    batches, load, loader = case.loading.batches, case.host.load, case.loading.loader
    if batches is None or load is None or loader is None or not loader.num_workers or case.device.is_used:
        return None  # beside a device the training thread mostly waits for that, and a queue for processors is hidden
    if case.loading.is_input_bound or load.workers <= load.others:
        return None  # late batches, or other programs: other rules know more
    if load.queued_frac is None:
        return _ask(case)
    stages = {stage: float(batches.stages_ns[stage].mean()) for stage in _STAGES if stage in batches.stages_ns}
    if load.queued_frac < CROWDED_FRAC or not stages:
        return None
    stage = max(stages, key=lambda name: stages[name])
    part = find_in_stage(case, stage)
    found = Finding(
        title="The workers take processors that the step needs",
        measured=f"Batches are there in time, but the workers use {load.workers:.1f} of {case.host.cores:g} cores, and the "
        f"training thread queues for one {format_share(load.queued_frac)} of its time: "
        f"{format_duration(load.queued_frac * case.steps.mean_ns)} of a {case.steps.noun}. Most of the workers' time goes to "
        f"{_DOING[stage]}: {format_duration(stages[stage])} for a batch, {format_share(batches.share(stage))} of their work."
        f"{_say_files(case, stage)}{say_functions(part, _DOING[stage])}",
        threshold=f"The {case.steps.noun} is not input-bound, the training thread queues for a processor at least "
        f"{format_share(CROWDED_FRAC)} of its time, and the workers use more than other programs.",
        advice=f"Make a batch cheaper: {_CHEAPER[stage]}. More workers would take still more from the {case.steps.noun}; "
        "more cores would help.",
        change=_CODE[stage],
        fix=f"{_DOING[stage]} in half of the time",
        evidence=(STAGES_PAGE,),
        assumption=f"{_DOING[stage]} took half as long",
        tier="M",
        what_if=scale_stages(case, batches, (stage,), 0.5),
        gain_range=(0.7, 1.1),
    )
    return blame_function(case, batches, found, part)


def _ask(case: Case) -> Abstention | None:
    """Ask for what is missing where it might matter: while most processors are in use."""
    if case.demand_frac < CAPPED_DEMAND_FRAC:
        return None
    return Abstention(
        "workers_take_processors", "how long the training thread queues for a processor", "Record on Linux."
    )


def _say_files(case: Case, stage: str) -> str:
    """Say how many files a sample lies in, where it is in several small ones."""
    reading = case.loading.reading
    if stage != "read" or reading is None or not reading.files or not reading.samples or reading.bytes is None:
        return ""
    files = reading.files / reading.samples
    return (
        f" A sample opens {files:.2g} files of {format_bytes(reading.bytes / reading.files)} each."
        if files >= 2
        else ""
    )


RULE = Rule("workers_take_processors", knob="sample_work", effort="code", judge=_judge)
