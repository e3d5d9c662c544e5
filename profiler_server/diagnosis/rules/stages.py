"""The work on a batch, stage by stage: what the steps wait for, and what takes their processors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from profiler_server.diagnosis.limits.facts import (
    CAPPED_DEMAND_FRAC,
    CAPPED_NEED,
    COMPUTING_FRAC,
    MIN_GAIN_FRAC,
    STORAGE_YIELD_FRAC,
    UNEVEN_SPREAD,
)
from profiler_server.diagnosis.limits.loading import (
    CACHED_BYTES_PER_S,
    COLD_RATIO,
    CROWDED_FRAC,
    LOOKUP_FRAC,
    MOST_CACHED_BYTES,
    OPENING_FRAC,
    SMALL_FILE_BYTES,
)
from profiler_server.diagnosis.what_if import blame_function, scale_stages
from profiler_server.diagnosis.wording import (
    STAGES_PAGE,
    find_dominant,
    find_in_stage,
    say_functions,
    say_input_limit,
    say_wait,
)
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.facts.loading import BatchTimes
from profiler_server.facts.results import Abstention
from profiler_server.format import format_bytes, format_duration, format_number_of, format_share


def _find_awaited(case: Case, stage: str) -> BatchTimes | None:
    """Return the work on batches where the steps wait for this stage of it."""
    awaits = case.loading.is_input_bound and case.loading.bottleneck.stage == stage
    return case.loading.batches if awaits else None


@dataclass(frozen=True)
class _Slow:
    """What is said of a slow stage. `seen` follows its share of the work; `left_frac` is what is left of it then."""

    title: str
    seen: str
    advice: str
    change: str
    fix: str
    assumption: str
    left_frac: float = 0.5
    gain_range: tuple[float, float] = (0.85, 1.1)


_SAID = {
    "read": ("Reading takes", "reading is"),
    "transform": ("Transforms take", "transforms are"),
    "collate": ("Collating takes", "collating is"),
}


def _judge_slow(case: Case, stage: str, describe: Callable[[Case], _Slow]) -> Finding | None:
    batches = _find_awaited(case, stage)
    if batches is None:
        return None
    slow, part = describe(case), find_in_stage(case, stage)
    takes, is_longest = _SAID[stage]
    samples = "" if stage == "transform" else f" of {format_number_of(round(batches.samples), 'sample')}"
    found = Finding(
        title=slow.title,
        measured=f"{say_wait(case)} {takes} {format_duration(float(batches.stages_ns[stage].mean()))} per batch{samples}, "
        f"{format_share(batches.share(stage))} of the loader's work{slow.seen}{say_functions(part, _DOING[stage])}",
        threshold=f"{say_input_limit(case)}, and {is_longest} the longest stage.",
        advice=slow.advice,
        change=slow.change,
        fix=slow.fix,
        evidence=(STAGES_PAGE,),
        assumption=slow.assumption,
        tier="M",
        what_if=scale_stages(case, batches, (stage,), slow.left_frac),
        gain_range=slow.gain_range,
    )
    return blame_function(case, batches, found, part)


def _judge_slow_read(case: Case) -> Finding | None:
    """Reading samples is what the loader spends its time on."""
    loading = case.loading
    # What is in memory already is not read faster from shards.
    is_at_hand = loading.is_in_memory and loading.loader is not None and loading.loader.style == "map"
    return None if loading.is_slow_for_few or is_at_hand else _judge_slow(case, "read", _describe_read)


def _describe_read(case: Case) -> _Slow:
    reading = case.loading.reading
    said = _Slow(
        title="Reading samples is slow",
        seen=".",
        advice="Read fewer, larger pieces: pack small files into shards, move the data to a local disk, or keep it in memory.",
        change="# pack samples once, then read whole shards in order, for instance:\n"
        "with tarfile.open('shard-000.tar', 'w') as shard:\n    for path in paths[:1000]:\n        shard.add(path)",
        fix="reading in half of the time",
        assumption="reading took half as long",
    )
    if reading is None or not case.loading.computes_to_read:
        return said
    files = " and opens no file" if reading.files == 0 else ""
    return replace(
        said,
        seen=f". It keeps a processor busy {format_share(case.loading.read_need)} of that time{files}: it computes, rather "
        "than waits for storage.",
        advice="Prepare what every epoch needs once, before training, as arrays or tensors: parsed, decoded, in whole columns. "
        "Then a sample is an index into them, and not work on Python objects.",
        change="self.inputs, self.targets = prepare(rows)  # once, in __init__: whole columns as tensors\n\n"
        "def __getitem__(self, index):\n    return self.inputs[index], self.targets[index]",
    )


def _judge_slow_transform(case: Case) -> Finding | None:
    """Transforms are what the loader spends its time on; the slowest is named."""
    return None if case.loading.is_slow_for_few else _judge_slow(case, "transform", _describe_transforms)


def _describe_transforms(case: Case) -> _Slow:
    name, share = case.loading.transforms[0] if case.loading.transforms else ("", 0.0)
    is_blamed = find_dominant(find_in_stage(case, "transform")) is not None
    cheaper = f"Make {name or 'the transform'} cheaper: do it once and store the result, do it"
    return _Slow(
        title=f"Transforms are slow: {name}" if name else "Transforms are slow",
        seen=f"; {name} alone is {format_share(share)} of it." if name and not is_blamed else ".",
        advice=f"{'Or do it' if is_blamed else cheaper} on smaller data, or do it for the whole batch at once (torchvision v2 "
        "transforms take batches, also on the device).",
        change="for images, _ in loader:\n    images = batch_transform(images.to(device))  # once per batch, not per sample",
        fix="transforms in half of their time",
        assumption="transforms took half as long",
    )


def _judge_slow_collate(case: Case) -> Finding | None:
    """Putting samples together into a batch is what the loader spends its time on."""
    return _judge_slow(case, "collate", lambda _: _COLLATE)


_COLLATE = _Slow(
    title="Collating batches is slow",
    seen=".",
    advice="Stacking tensors is a copy and should cost next to nothing: return tensors of one shape from the "
    "dataset and stack them, without a Python loop over elements.",
    change="def collate(samples):\n    inputs, targets = zip(*samples)\n"
    "    return torch.stack(inputs), torch.as_tensor(targets)",
    fix="collating with torch.stack",
    assumption="collating took a tenth of its time",
    left_frac=0.1,
    gain_range=(0.6, 1.1),
)


def _judge_small_files(case: Case) -> Finding | None:
    """Opening many files is a large part of what the workers do."""
    batches, reading = _find_awaited(case, "read"), case.loading.reading
    if batches is None or reading is None or reading.bytes is None:
        return None
    if not reading.files or not reading.open_ns or not reading.read_ns:
        return None
    share = min(reading.open_ns / reading.read_ns, 1.0)
    size = reading.bytes / reading.files
    if share < OPENING_FRAC or size >= SMALL_FILE_BYTES:
        return None
    per_sample = reading.files / reading.samples if reading.samples else 0.0
    each = f", {per_sample:.2g} for each sample" if per_sample else ""
    return Finding(
        title="Samples lie in many small files",
        measured=f"{say_wait(case)} A batch opens {reading.files:.0f} files{each}, {format_bytes(size)} each: opening them "
        f"takes {format_duration(reading.open_ns)}, {format_share(share)} of reading.",
        threshold=f"{say_input_limit(case)}, reading is the longest stage, at least {format_share(OPENING_FRAC)} of it is "
        f"opening files, and they have less than {format_bytes(SMALL_FILE_BYTES)}.",
        advice="Pack the samples into few large files once, and keep those open: a tar, an array that is mapped into "
        "memory, or a table. Then a sample costs its bytes and no look-up of a name.",
        change="# once:\nnumpy.save('all.npy', numpy.stack([load(path) for path in paths]))\n"
        "# in the dataset:\nself.samples = numpy.load('all.npy', mmap_mode='r')",
        fix="samples in few large files",
        evidence=(STAGES_PAGE,),
        tier="M",
        what_if=scale_stages(case, batches, ("read",), 1.0 - share),
        gain_range=(0.8, 1.3),
    )


def _judge_storage_bandwidth(case: Case) -> Finding | Abstention | None:
    """The storage gives so many bytes per second, however many workers ask for them."""
    loader, batches, reading = case.loading.loader, _find_awaited(case, "read"), case.loading.reading
    if loader is None or batches is None or reading is None or loader.num_workers < 2:
        return None
    if reading.cpu_frac is None or reading.cpu_frac >= COMPUTING_FRAC:
        return None
    if not reading.bytes:
        return Abstention(
            "storage_bandwidth",
            "how many bytes the workers read",
            "Only files that are read by calls are counted, not those that are mapped into memory.",
        )
    crowding = reading.crowding
    if crowding is None:
        return Abstention(
            "storage_bandwidth",
            "reading by fewer workers at once, to compare with",
            f"Record some steps with num_workers={max(1, loader.num_workers // 2)}, or several epochs.",
        )
    if not case.loading.is_capped_by_storage:
        return None
    return Finding(
        title="The storage is the limit",
        measured=f"{say_wait(case)} When {crowding.many:.1f} workers read at once they get "
        f"{format_bytes(crowding.many_bytes_per_s)}/s together, {crowding.few:.1f} get "
        f"{format_bytes(crowding.few_bytes_per_s)}/s: more of them only wait longer.",
        threshold=f"{say_input_limit(case)}, reading is the longest stage and waits, and more workers add less than "
        f"{format_share(STORAGE_YIELD_FRAC)} of what they should.",
        advice="Read fewer bytes (a compressed format, smaller images, fewer columns), copy the data to a faster or a local "
        "disk, or keep it in memory. More workers do not help.",
        change="cp -r /network/dataset /local/disk/  # once, before training",
        fix="half of the bytes",
        evidence=(STAGES_PAGE,),
        assumption="half as many bytes were read",
        tier="M",
        what_if=scale_stages(case, batches, ("read",), 0.5),
        gain_range=(0.7, 1.1),
    )


def _judge_repeated_decode(case: Case) -> Finding | Abstention | None:
    """Every epoch decodes the same samples again, at a cost that a cache of decoded samples would save."""
    loader, batches, reading = case.loading.loader, _find_awaited(case, "read"), case.loading.reading
    if loader is None or batches is None or reading is None or not loader.num_workers or loader.style != "map":
        return None
    if case.loading.takes_whole_batches:
        return None
    computes = reading.cpu_frac is not None and reading.cpu_frac >= CAPPED_NEED
    uneven = float(batches.total_ns.std()) > UNEVEN_SPREAD * float(batches.total_ns.mean())
    if reading.epochs < 2 or not computes or uneven or not case.is_capped:
        return None
    if not loader.length_batches or not batches.bytes:
        return Abstention(
            "repeated_decode",
            "how large all decoded samples are",
            "Give the dataset a length, and return tensors: their bytes are counted on the way from the workers.",
        )
    whole = batches.bytes * loader.length_batches
    if whole > MOST_CACHED_BYTES:
        return None
    read_ns = float(batches.stages_ns["read"].mean())
    left = min(1.0, batches.bytes / CACHED_BYTES_PER_S * 1e9 / read_ns + LOOKUP_FRAC) if read_ns else 1.0
    return Finding(
        title="Every epoch decodes the same samples again",
        measured=f"{say_wait(case)} Reading takes {format_duration(read_ns)} per batch, {format_share(reading.cpu_frac)} of it "
        f"computing, in each of {reading.epochs} epochs. Decoded, all samples are about {format_bytes(whole)}.",
        threshold=f"{say_input_limit(case)}, reading is the longest stage and computes for at least {format_share(CAPPED_NEED)} "
        f"of its time, two epochs or more, no processor is free, and at most {format_bytes(MOST_CACHED_BYTES)}.",
        advice="Decode once, write the result to one file, and map that into memory: the page cache serves all workers. "
        "Leave out what is random; that must stay in every epoch.",
        change="# once:\nnumpy.save('decoded.npy', numpy.stack([decode(path) for path in paths]))\n"
        "# in the dataset:\nself.samples = numpy.load('decoded.npy', mmap_mode='r')",
        fix="reading decoded samples",
        evidence=(STAGES_PAGE,),
        assumption=f"nothing of reading is random, and decoded bytes come at {format_bytes(CACHED_BYTES_PER_S)}/s",
        what_if=scale_stages(case, batches, ("read",), left),
        gain_range=(0.5, 1.05),
    )


def _judge_cold_cache(case: Case) -> Finding | None:
    """The first epoch read from the storage, later ones from memory."""
    loader, reading = case.loading.loader, case.loading.reading
    if loader is None or reading is None or reading.first_ns is None or reading.later_ns is None:
        return None
    saved_ns = reading.first_ns - reading.later_ns
    need = case.loading.read_need
    waits = need is not None and need < CAPPED_NEED
    # Workers share the time that is lost.
    least_ns = MIN_GAIN_FRAC * case.steps.mean_ns * max(loader.num_workers, 1)
    if reading.first_ns < COLD_RATIO * reading.later_ns or saved_ns < least_ns or not waits:
        return None
    return Finding(
        title="The first epoch read from a cold cache",
        measured=f"Reading a batch took {format_duration(reading.first_ns)} in the first epoch and "
        f"{format_duration(reading.later_ns)} in later ones (medians).",
        threshold=f"At least {COLD_RATIO:g} times as long, waiting rather than computing.",
        advice="Later epochs found the data in memory. Judge the first epoch by itself: a data set that does not fit in "
        "memory, or a machine that was just started, is as slow as that in every epoch.",
        change="cat /path/to/dataset/* > /dev/null  # reads it into memory before training",
        fix="data that lies in memory",
        evidence=(STAGES_PAGE,),
    )


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
    "collate": _COLLATE.change,
}


def _judge_workers_take_processors(case: Case) -> Finding | Abstention | None:
    """The workers keep up, on processors that the step then queues for; the work that takes most of them is named."""
    batches, load, loader = case.loading.batches, case.host.load, case.loading.loader
    if batches is None or load is None or loader is None or not loader.num_workers or case.device.is_used:
        return None  # beside a device the training thread mostly waits for that, and a queue for processors is hidden
    if case.loading.is_input_bound or load.workers <= load.others:
        return None  # late batches, or other programs: other rules know more
    if load.queued_frac is None:  # it might matter while most processors are in use
        is_full = case.demand_frac >= CAPPED_DEMAND_FRAC
        missing = "how long the training thread queues for a processor"
        return Abstention("workers_take_processors", missing, "Record on Linux.") if is_full else None
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


RULES = (
    Rule("slow_read", knob="sample_work", effort="format", judge=_judge_slow_read, stage="read"),
    Rule("slow_transform", knob="sample_work", effort="code", judge=_judge_slow_transform, stage="transform"),
    Rule("slow_collate", knob="collate", effort="code", judge=_judge_slow_collate, stage="collate"),
    Rule("small_files", knob="sample_work", effort="format", judge=_judge_small_files),
    Rule("storage_bandwidth", knob="sample_work", effort="format", judge=_judge_storage_bandwidth),
    Rule("repeated_decode", knob="sample_work", effort="format", judge=_judge_repeated_decode),
    Rule("cold_cache", knob="cold_cache", effort="flag", judge=_judge_cold_cache),
    Rule("workers_take_processors", knob="sample_work", effort="code", judge=_judge_workers_take_processors),
)
