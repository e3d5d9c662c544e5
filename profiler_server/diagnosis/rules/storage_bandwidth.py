"""The storage gives so many bytes per second, however many workers ask for them."""

from __future__ import annotations

from profiler_server.diagnosis.limits import COMPUTING_FRAC, STORAGE_YIELD_FRAC
from profiler_server.diagnosis.what_if import scale_stages
from profiler_server.diagnosis.wording import STAGES_PAGE, say_input_limit, say_wait
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.facts.results import Abstention
from profiler_server.format import format_bytes, format_share


def _judge(case: Case) -> Finding | Abstention | None:
    loader, batches, reading = case.loading.loader, case.loading.batches, case.loading.reading
    if loader is None or batches is None or reading is None or loader.num_workers < 2:
        return None
    waits = reading.cpu_frac is not None and reading.cpu_frac < COMPUTING_FRAC
    if not case.loading.is_input_bound or case.loading.bottleneck.stage != "read" or not waits:
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


RULE = Rule("storage_bandwidth", knob="sample_work", effort="format", judge=_judge)
