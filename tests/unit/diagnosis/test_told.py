"""What rules say of facts that no planted run has: read the golden file beside each row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace

import numpy as np
import pytest

from profiler_server.facts.case import Case
from profiler_server.facts.job import Handover, HeavyStage, LateRank, Slow, Turns, UnevenWork
from profiler_server.facts.loading import Reading
from tests.support import facts as make
from tests.support.diagnosing import Golden
from tests.support.runs import MS
from tests.support.varying import write_findings
from tests.unit.diagnosis.edges import loading, noted
from tests.unit.diagnosis.edges.base import STEPS, base, starving
from tests.unit.diagnosis.edges.course import shift


def shift_phase(phase: str) -> Case:
    """Steps that take 24 ms longer from the sixty-first on, in one phase."""
    later = np.arange(STEPS) >= STEPS // 2
    case = make.with_rows(shift(0.375), tail_ns=0)
    return make.with_rows(case, **{f"{phase}_ns": np.where(later, 34 * MS, 10 * MS)})


def turning(others: float = 0.0, correlation: float | None = None) -> Case:
    verdict = Turns(noted.compared(uneven_correlation=correlation), 0.3 * base().steps.mean_ns, (), 1.0)
    case = noted.judged(verdict)
    return make.with_load(case, others=others * case.host.cores)


def read(**given: object) -> Case:
    usual = Reading(100.0 * MS, 2, 0.97, 32.0, 0.0, 0.0, None, None, None, None)
    return make.with_loading(starving(), reading=replace(usual, **given))  # type: ignore[arg-type]


def late_forward() -> LateRank:
    return replace(noted.compared(9.0 * MS).latest, phase="forward", others=3, late_frac=0.14)


def precise(capability: str) -> Case:
    case = make.with_device(base(), busy=0.9, full_precision_frac=0.5)
    entry = replace(case.device.entries[0], compute_capability=capability)
    return replace(case, device=replace(case.device, entries=(entry,)))


def computed_before() -> Case:
    return noted.calls(compared=256, known=12, known_ns=5 * 20 * MS)


TOLD: Mapping[str, tuple[str, Callable[[], Case]]] = {
    "communication grew": ("shift", lambda: shift_phase("communication")),
    "computed before": ("repeated_call", computed_before),
    "computed twice by a line": ("repeated_call", lambda: noted.computed_again(0.3)),
    "several losses one after the other": ("repeated_call", lambda: noted.swept(0.3)),
    "gradients for several inputs": ("repeated_call", lambda: noted.swept(0.3, "inputs")),
    "gradients of many parts": ("repeated_call", lambda: noted.swept(0.3, "parts")),
    "rows that are dropped": ("late_selection", lambda: noted.spared(0.3)),
    "rows that are dropped by many lines": ("late_selection", lambda: noted.spared(0.3, 0.2)),
    "computed twice by many lines": ("repeated_call", lambda: noted.computed_again(0.3, 0.2)),
    "data wait grew": ("shift", lambda: shift_phase("data_wait")),
    "forward grew": ("shift", lambda: shift_phase("forward")),
    "turns for no reason": ("rotating_straggler", turning),
    "turns of uneven work": ("rotating_straggler", lambda: turning(correlation=0.9)),
    "turns of uneven work on a busy host": ("rotating_straggler", lambda: turning(0.35, 0.9)),
    "reading that computes": ("slow_read", read),
    "reading that computes and opens files": ("slow_read", lambda: read(files=32.0, bytes=2e6, open_ns=1.0 * MS)),
    "reading that waits": ("slow_read", lambda: read(cpu_frac=0.1)),
    "reading many bytes": ("slow_read", lambda: read(bytes=400e6)),
    "reading that opens for long": ("slow_read", lambda: read(files=64.0, open_ns=80.0 * MS)),
    "reading unknown bytes": ("slow_read", lambda: read(bytes=None)),
    "copies of gradients": ("bucket_copies", lambda: noted.copying(0.25)),
    "a stage with more work": (
        "uneven_stages",
        lambda: noted.judged(HeavyStage(noted.compared(), 3, (6, 7), 30.0 * MS, 20.0 * MS, 9.0 * MS)),
    ),
    "micro-batches of unequal work": (
        "rotating_straggler",
        lambda: noted.judged(UnevenWork(noted.compared(uneven_correlation=0.9), 8.0 * MS)),
    ),
    "one slow rank and then another": (
        "fixed_straggler",
        lambda: noted.judged(Handover(noted.compared(9.0 * MS), 31, 0, 20.0 * MS, 1, 30.0 * MS, 25.0 * MS)),
    ),
    "a rank that is last in the longest waits": (
        "fixed_straggler",
        lambda: noted.judged(Slow(replace(noted.compared(9.0 * MS), latest=late_forward()), longest=(12, 15))),
    ),
    "heat": ("clock_throttle", lambda: noted.throttled(0.25)),
    "late launches": ("launch_bound", lambda: make.with_device(base(), busy=0.5)),
    "full precision": ("tf32_off", lambda: precise("8.0")),
    "full precision of old": ("amp_off", lambda: precise("7.0")),
    "freeing sent objects": ("ipc_bound", lambda: loading.free(2.0 * MS)),
}


@pytest.mark.parametrize("name", TOLD)
def test_a_rule_says_what_it_found(name: str, golden: Golden) -> None:
    rule, build = TOLD[name]
    text = make.find(build(), rule).text
    golden(f"facts/{name.replace(' ', '-')}", write_findings(build(), rule))
    golden(
        f"told/{name.replace(' ', '-')}", "".join(f"{part.name}: {getattr(text, part.name)}\n" for part in fields(text))
    )
