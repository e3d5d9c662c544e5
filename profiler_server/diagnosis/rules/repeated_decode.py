"""Every epoch decodes the same samples again, at a cost that a cache of decoded samples would save."""

from __future__ import annotations

from profiler_server.diagnosis.limits import (
    CACHED_BYTES_PER_S,
    CAPPED_NEED,
    MOST_CACHED_BYTES,
    UNEVEN_SPREAD,
)
from profiler_server.diagnosis.what_if import scale_stages
from profiler_server.diagnosis.wording import STAGES_PAGE, say_input_limit, say_wait
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.facts.results import Abstention
from profiler_server.format import format_bytes, format_duration, format_share

_LOOKUP_FRAC = 0.05
"""What is left of reading besides moving the bytes."""


def _judge(case: Case) -> Finding | Abstention | None:
    loader, batches, reading = case.loading.loader, case.loading.batches, case.loading.reading
    if loader is None or batches is None or reading is None or not loader.num_workers or loader.style != "map":
        return None
    if not case.loading.is_input_bound or case.loading.bottleneck.stage != "read" or case.loading.takes_whole_batches:
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
    left = min(1.0, batches.bytes / CACHED_BYTES_PER_S * 1e9 / read_ns + _LOOKUP_FRAC) if read_ns else 1.0
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


RULE = Rule("repeated_decode", knob="sample_work", effort="format", judge=_judge)
