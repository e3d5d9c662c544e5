"""The work on a batch, stage by stage: stages for which the steps wait, and stages that take processors from the steps."""

from __future__ import annotations

from profiler_server.diagnosis.limits import loading as limits
from profiler_server.diagnosis.limits.facts import (
    CAPPED_DEMAND_FRAC,
    CAPPED_NEED,
    COMPUTING_FRAC,
    MIN_GAIN_FRAC,
    UNEVEN_SPREAD,
)
from profiler_server.diagnosis.what_if import blame_function, scale_stages, take_away
from profiler_server.facts.case import Abstention, Case, Finding, Rule
from profiler_server.facts.loading import BatchTimes
from profiler_server.format import format_bytes, format_share
from profiler_server.words.phrases import (
    STAGES_PAGE,
    describe,
    find_dominant,
    find_in_stage,
    say_functions,
)


def _find_awaited(case: Case, stage: str) -> BatchTimes | None:
    """Return the work on each batch if this stage of the loader is what the steps wait for, else None."""
    awaits = case.loading.is_input_bound and case.loading.bottleneck.stage == stage
    return case.loading.batches if awaits else None


_STAGES = ("read", "transform", "collate")
_DOING = {"read": "reading", "transform": "transforms", "collate": "collating"}


def _judge_slow(case: Case, stage: str, entry: str, seen: str = ".", left_frac: float = 0.5) -> Finding | None:
    """Return the finding `entry` if steps wait for batches because of `stage`, else None.

    `seen` follows the share of the stage in the text. `left_frac` is the share of the stage's time that usually remains
    after the fix.
    """
    batches = _find_awaited(case, stage)
    if batches is None:
        return None
    part = find_in_stage(case, stage)
    found = Finding(
        describe(
            case,
            entry,
            stage_ns=float(batches.stages_ns[stage].mean()),
            samples=round(batches.samples),
            share=batches.share(stage),
            seen=f"{seen}{say_functions(part, _DOING[stage])}",
            transform=case.loading.transforms[0][0] if case.loading.transforms else "the transform",
        ),
        evidence=(STAGES_PAGE,),
        what_if=take_away(case, batches, stage, left_frac),
        doubt_frac=0.1,
        least_frac=0.6 if stage == "collate" else 0.85,
    )
    return blame_function(case, batches, found, part)


def _judge_slow_read(case: Case) -> Finding | None:
    """The loader spends its time on reading samples."""
    loading = case.loading
    # Data in memory is not read faster from shards.
    is_at_hand = loading.is_in_memory and loading.loader is not None and loading.loader.style == "map"
    if loading.is_slow_for_few or is_at_hand:
        return None
    if loading.reading is None or not loading.computes_to_read:
        return _judge_slow(case, "read", "slow_read")
    files = " and opens no file" if loading.reading.files == 0 else ""
    busy = f"It keeps a processor busy {format_share(loading.read_need)} of that time{files}"
    return _judge_slow(case, "read", "slow_read.computing", f". {busy}: it computes, rather than waits for storage.")


def _judge_slow_transform(case: Case) -> Finding | None:
    """The loader spends its time on transforms; the slowest transform is named."""
    if case.loading.is_slow_for_few:
        return None
    name, share = case.loading.transforms[0] if case.loading.transforms else ("", 0.0)
    is_blamed = find_dominant(find_in_stage(case, "transform")) is not None
    entry = "slow_transform.blamed" if is_blamed else "slow_transform.named" if name else "slow_transform"
    seen = f"; {name} alone is {format_share(share)} of it." if name and not is_blamed else "."
    return _judge_slow(case, "transform", entry, seen)


def _judge_slow_collate(case: Case) -> Finding | None:
    """The loader spends its time on putting samples together into a batch."""
    return _judge_slow(case, "collate", "slow_collate", left_frac=0.1)


def _judge_small_files(case: Case) -> Finding | None:
    """Opening many files is a large part of what the workers do."""
    batches, reading = _find_awaited(case, "read"), case.loading.reading
    if batches is None or reading is None or reading.bytes is None:
        return None
    if not reading.files or not reading.open_ns or not reading.read_ns:
        return None
    share = min(reading.open_ns / reading.read_ns, 1.0)
    size = reading.bytes / reading.files
    if share < limits.OPENING_FRAC or size >= limits.SMALL_FILE_BYTES:
        return None
    each = f", {reading.files / reading.samples:.2g} for each sample" if reading.samples else ""
    return Finding(
        describe(case, "small_files", each=each, size=size, share=share),
        evidence=(STAGES_PAGE,),
        what_if=scale_stages(case, batches, ("read",), 1.0 - share),
        doubt_frac=0.2,
        least_frac=0.8,
    )


def _judge_storage_bandwidth(case: Case) -> Finding | Abstention | None:
    """The storage delivers no more bytes per second, however many workers read."""
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
        describe(case, "storage_bandwidth", crowding=crowding),
        evidence=(STAGES_PAGE,),
        what_if=scale_stages(case, batches, ("read",), 0.5),
        doubt_frac=0.1,
        least_frac=0.7,
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
    if whole > limits.MOST_CACHED_BYTES:
        return None
    read_ns = float(batches.stages_ns["read"].mean())
    left = min(1.0, batches.bytes / limits.CACHED_BYTES_PER_S * 1e9 / read_ns + limits.LOOKUP_FRAC) if read_ns else 1.0
    return Finding(
        describe(case, "repeated_decode", read_ns=read_ns, whole=whole),
        evidence=(STAGES_PAGE,),
        what_if=scale_stages(case, batches, ("read",), left),
        doubt_frac=0.1,
        least_frac=0.5,
    )


def _judge_cold_cache(case: Case) -> Finding | None:
    """The first epoch read from the storage, later ones from memory."""
    loader, reading = case.loading.loader, case.loading.reading
    if loader is None or reading is None or reading.first_ns is None or reading.later_ns is None:
        return None
    saved_ns = reading.first_ns - reading.later_ns
    need = case.loading.read_need
    # A loader that opens no files reads nothing that would be in memory the second time.
    waits = need is not None and need < CAPPED_NEED and reading.files != 0
    # The workers share the lost time.
    least_ns = MIN_GAIN_FRAC * case.steps.mean_ns * max(loader.num_workers, 1)
    if reading.first_ns < limits.COLD_RATIO * reading.later_ns or saved_ns < least_ns or not waits:
        return None
    return Finding(describe(case, "cold_cache"), evidence=(STAGES_PAGE,))


def _judge_workers_take_processors(case: Case) -> Finding | Abstention | None:
    """The workers keep up, but on processors that the step queues for; the work that takes most processor time is named."""
    batches, load, loader = case.loading.batches, case.host.load, case.loading.loader
    if batches is None or load is None or loader is None or not loader.num_workers or case.device.is_used:
        # With a device, the recorded thread mostly waits for the device, which hides its queue for processors.
        return None
    is_late = case.loading.is_input_bound and case.loading.bottleneck.cause != "processor"
    if is_late or load.workers <= load.others:
        return None  # late batches or other programs: other rules explain these
    if load.queued_frac is None:  # the queue may matter while most processors are in use
        is_full = case.demand_frac >= CAPPED_DEMAND_FRAC
        missing = "how long the recorded thread queues for a processor"
        return Abstention("workers_take_processors", missing, "Record on Linux.") if is_full else None
    stages = {stage: float(batches.stages_ns[stage].mean()) for stage in _STAGES if stage in batches.stages_ns}
    if load.queued_frac < limits.CROWDED_FRAC or not stages:
        return None
    stage = max(stages, key=lambda name: stages[name])
    part = find_in_stage(case, stage)
    found = Finding(
        describe(
            case,
            f"workers_take_processors.{stage}",
            queued_ns=load.queued_frac * case.steps.mean_ns,
            doing=_DOING[stage],
            stage_ns=stages[stage],
            share=batches.share(stage),
            functions=f"{_say_files(case, stage)}{say_functions(part, _DOING[stage])}",
        ),
        evidence=(STAGES_PAGE,),
        what_if=take_away(case, batches, stage, 0.5),
        doubt_frac=0.2,
        least_frac=0.7,
    )
    return blame_function(case, batches, found, part)


def _say_files(case: Case, stage: str) -> str:
    """Return a sentence on the files that one sample opens; "" for a single file, or if unknown."""
    reading = case.loading.reading
    if stage != "read" or reading is None or not reading.files or not reading.samples or reading.bytes is None:
        return ""
    files, size = reading.files / reading.samples, format_bytes(reading.bytes / reading.files)
    return f" A sample opens {files:.2g} files of {size} each." if files >= 2 else ""


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
