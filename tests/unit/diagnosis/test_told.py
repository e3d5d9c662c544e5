"""What rules say of facts that no planted run has: read the golden file beside each row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace

import numpy as np
import pytest

from profiler_server.facts.case import Case
from profiler_server.facts.job import Turns
from profiler_server.facts.loading import Reading
from tests.support import facts as make
from tests.support.diagnosing import Golden
from tests.support.runs import MS
from tests.unit.diagnosis.edges import noted
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


TOLD: Mapping[str, tuple[str, Callable[[], Case]]] = {
    "communication grew": ("shift", lambda: shift_phase("communication")),
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
}


@pytest.mark.parametrize("name", TOLD)
def test_a_rule_says_what_it_found(name: str, golden: Golden) -> None:
    rule, build = TOLD[name]
    text = make.find(build(), rule).text
    golden(
        f"told/{name.replace(' ', '-')}", "".join(f"{part.name}: {getattr(text, part.name)}\n" for part in fields(text))
    )
