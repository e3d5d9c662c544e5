"""The account of each phase: stages, lines, operators and what is left sum to the phase."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.format.phases import PHASE_NAMES
from profiler_server.analysis.accounting.explained import explain_phases
from profiler_server.diagnosis.judging import judge
from profiler_server.facts.case import Case, Lines
from profiler_server.facts.loading import SamplerTimes
from profiler_server.facts.steps import Explained
from tests.support import facts as make
from tests.support.runs import MS
from tests.unit.diagnosis.edges.base import base, starving
from tests.unit.diagnosis.edges.lines import spot, with_lines, work

SHARES = st.floats(0.0, 1.5, allow_nan=False)


def account(case: Case) -> dict[str, Explained]:
    found = explain_phases(case.steps, (case.loading, *case.other_loadings), case.lines)
    return {entry.phase: entry for entry in found}


def own_loader(batch_ms: float, wait_frac: float = 0.6) -> Case:
    """The training thread makes its batches: the wait takes a share of 64 ms, and the stages so long of it."""
    case = make.with_loader(make.split_step(starving(wait_frac), data_wait=wait_frac), num_workers=0)
    return make.with_model(make.with_batches(case, np.full(40, batch_ms * MS)), workers=0)


def sampling(batch_ms: float) -> Case:
    inside = {"torch.RandomSampler.__iter__": 0.5}
    line = spot(0.6, "loader", is_of_loop=True, phases={"data_wait": 0.6}, inside=inside, made_frac=0.5)
    return with_lines(line, case=own_loader(batch_ms))


@given(st.fixed_dictionaries(dict.fromkeys(PHASE_NAMES, SHARES)), SHARES, SHARES, SHARES, st.booleans())
def test_parts_and_rest_sum_to_the_phase(
    shares: dict[str, float], batch: float, line: float, rest: float, has_workers: bool
) -> None:
    case = make.with_steps(starving(), phases_ns={name: share * 64 * MS for name, share in shares.items()})
    case = make.with_steps(case, operator_fracs={name: min(share, 1.0) for name, share in shares.items()})
    case = make.with_batches(make.with_loader(case, num_workers=2 * has_workers), batch * 64 * MS)
    case = make.with_loading(case, sampler=SamplerTimes("Weighted", rest * MS))
    spots = [spot(line, doing, phases={name: line}, work=work()) for name in PHASE_NAMES for doing in ("", "update")]
    case = replace(case, lines=Lines(100, tuple(spots), rest, 0.0, 0.0))
    for phase, entry in account(case).items():
        assert entry.whole_ns == case.steps.phases_ns[phase]
        assert all(part >= 0.0 for part in entry.parts.values())
        assert sum(entry.parts.values()) + entry.rest_ns == pytest.approx(entry.whole_ns, rel=1e-12)


def test_a_wait_that_is_no_work_of_the_loader_is_named() -> None:
    found = judge(sampling(2.0))
    said = (
        "2.00 ms of 38.4 ms of waiting are work of the loader. 36.4 ms are not explained: torch.RandomSampler.__iter__ at train.py:41, "
        "made again in each step."
    )
    assert said in found.limit
    assert said in found.sentence


def test_a_wait_that_the_stages_explain_is_left_alone() -> None:
    assert "are not explained" not in judge(sampling(37.0)).limit


def test_workers_that_are_late_explain_the_wait() -> None:
    case = make.split_step(starving(0.6), data_wait=0.6)
    assert account(case)["data_wait"].rest_ns == pytest.approx(0.0)


def test_operators_of_a_line_are_counted_once() -> None:
    case = make.with_steps(base(), operator_fracs={"forward": 0.9})
    forward_frac = case.steps.share("forward")
    mine = spot(0.5 * forward_frac, phases={"forward": 0.5 * forward_frac}, work=work(operator_frac=0.8))
    parts = account(with_lines(mine, case=case))["forward"].parts
    assert parts["mine()"] == pytest.approx(0.5 * case.steps.phases_ns["forward"])
    assert parts["operators"] == pytest.approx(0.5 * case.steps.phases_ns["forward"])


def test_a_starved_thread_has_no_account() -> None:
    """Its phases show the host."""
    case = make.with_load(sampling(2.0), queued_frac=0.9)
    assert "are not explained" not in judge(case).limit
