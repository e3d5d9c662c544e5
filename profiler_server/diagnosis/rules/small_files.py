"""Opening many files is a large part of what the workers do."""

from __future__ import annotations

from profiler_server.diagnosis.limits import OPENING_FRAC, SMALL_FILE_BYTES
from profiler_server.diagnosis.what_if import scale_stages
from profiler_server.diagnosis.wording import STAGES_PAGE, say_input_limit, say_wait
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.format import format_bytes, format_duration, format_share


def _judge(case: Case) -> Finding | None:
    batches, reading = case.loading.batches, case.loading.reading
    if batches is None or reading is None or not case.loading.is_input_bound or case.loading.bottleneck.stage != "read":
        return None
    if not reading.files or not reading.open_ns or reading.bytes is None or not reading.read_ns:
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


RULE = Rule("small_files", knob="sample_work", effort="format", judge=_judge)
