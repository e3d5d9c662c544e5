"""Every threshold is driven from just below and just above, through the rule, the reading or the verdict that uses it.

The figures stand here once more on purpose: a threshold that moves by accident fails its test.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from collector.format.steps import read_integers
from profiler_server.diagnosis import limits
from profiler_server.diagnosis.ranking import Fixed, make_claim
from profiler_server.diagnosis.verdict import find_bound
from profiler_server.diagnosis.what_if import shorten_step
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.facts.steps import Held, Interruptions, SlowConvolutions
from tests.support import facts as make
from tests.unit.diagnosis.edges import course, device, gains, loading, noted, thread, waiting, window
from tests.unit.diagnosis.edges.base import STEPS, Edge, base

EDGES: Mapping[str, Edge] = {
    **waiting.EDGES,
    **gains.EDGES,
    **loading.EDGES,
    **device.EDGES,
    **thread.EDGES,
    **course.EDGES,
    **noted.EDGES,
    **window.EDGES,
}
EXACT = {
    *(
        "VOLTA",
        "AMPERE",
        "LEAST_LOW_FRAC",
        "UNSEEN_DEVICE",
        "FLOAT64_SAVED_FRAC",
        "BACKGROUND_SAVED_FRAC",
        "DRIFT_PARTS",
    ),
    *("PARALLEL_FRAC", "COPIED_BYTES_PER_S", "CACHED_BYTES_PER_S"),
    *("TENSORS_SEND_NS", "COPY_BYTES_PER_NS", "EASED_FRAC"),
    *("LEAST_OF_DELAY", "MOST_OF_DELAY"),
}
"""Figures that are no threshold of one quantity; those with a consequence have a test of their own below."""


def agreeing(share: float) -> str:
    """Return the words of a verdict with which this share of the steps agrees."""
    case = split_waits(0.3, share)
    return find_bound(case).confidence


def split_waits(wait: float, share: float) -> Case:
    """Let this share of the steps wait for data so long, and the others not at all; in stretches of 25 steps."""
    waits = np.where(np.arange(STEPS) < share * STEPS, wait, 0.0)
    return make.split_step(base(), data_wait=waits)


def test_every_limit_is_tested() -> None:
    names = {name for name in vars(limits) if name.isupper()}
    assert names == {*EDGES, *EXACT}


@pytest.mark.parametrize("name", EDGES)
def test_the_threshold_lies_where_it_is_said_to(name: str) -> None:
    edge = EDGES[name]
    assert not edge.drive(edge.at * 0.999), "it speaks below its threshold"
    assert edge.drive(edge.at * 1.001), "it is silent above its threshold"


@pytest.mark.parametrize(
    ("capability", "rules"), [("6.1", []), ("7.0", ["amp_off"]), ("8.0", ["tf32_off"]), ("9.0", ["tf32_off"])]
)
def test_precision_follows_the_generation_of_the_device(capability: str, rules: list[str]) -> None:
    case = make.with_device(base(), full_precision_frac=0.5)
    entry = replace(case.device.entries[0], compute_capability=capability)
    case = replace(case, device=replace(case.device, entries=(entry,)))
    assert [rule for rule in ("amp_off", "tf32_off") if make.speaks(case, rule)] == rules


@pytest.mark.parametrize(
    ("waiting", "words"),
    [
        (1.0, "sure: 120 steps agree"),
        (0.8, "fairly sure: 90 of 120 steps agree"),
        (0.5, "unsure: only 60 of 120 steps agree"),
    ],
)
def test_how_sure_a_verdict_is_follows_from_the_steps_that_agree(waiting: float, words: str) -> None:
    assert agreeing(waiting) == words


def test_a_verdict_on_computing_is_unsure_while_the_device_was_not_seen() -> None:
    case = make.with_device(base(), summary=None)
    found = find_bound(case)
    assert (found.confidence_frac, found.confidence) == (0.6, "unsure: the times of the device were not recorded")


def test_a_range_ends_at_a_tenth_of_its_prediction_at_the_lowest() -> None:
    """A change that may gain ten times what is predicted promises no step that takes next to nothing."""
    case = base()
    what_if = shorten_step(case, "gap", case.loading.loop.own_ns, 0.5)
    finding = Finding("t", "m", "t", "a", "c", "f", (), tier="M", what_if=what_if, gain_range=(1.0, 10.0))
    rule = Rule("x", knob="x", effort="code", judge=lambda case: None)
    claim = make_claim(case, rule, finding, Fixed(case.loading.loop.model, case.steps.mean_ns, {}))
    assert claim.step_ns < case.steps.mean_ns
    assert claim.low_ns == pytest.approx(0.1 * claim.step_ns)


@pytest.mark.parametrize(("slow", "saved"), [(0.0, 0.5), (0.5, 0.65), (1.0, 0.8)])
def test_float32_is_expected_to_halve_the_computing_but_for_slow_convolutions(slow: float, saved: float) -> None:
    case = make.with_steps(device.doubles(1.0), slow_convolutions=SlowConvolutions(slow, 0.8))
    model, own_ns = case.loading.loop.model, case.loading.loop.own_ns
    computed = sum(case.steps.phases_ns[name] for name in ("forward", "backward", "optimizer"))
    changed = make.find(case, "float64").what_if.change(model)
    share = sum(step.wall_ns for step in changed.steps) / sum(step.wall_ns for step in model.steps)
    assert share == pytest.approx(1 - saved * computed / own_ns)


def test_what_surrounds_a_save_goes_with_it() -> None:
    """Three steps flush for twice as long as they save: all of that is taken to the background, but for a tenth."""
    case = base()
    starts, durations = (read_integers(case.steps.rows, name) for name in ("start_ns", "duration_ns"))
    saved_ns, flushed_ns = int(0.2 * durations.sum() / 3), int(0.4 * durations.sum() / 3)
    saving = np.isin(np.arange(STEPS), (30, 60, 90))
    rows = make.with_rows(case, gap_ns=np.where(saving, saved_ns + flushed_ns, 0)).steps.rows
    zeros = np.zeros(3, np.int64)
    saves = Interruptions((Held("checkpoint", "torch.save"),), zeros, starts[saving], zeros + saved_ns, zeros)
    case = make.with_steps(case, rows=rows, interruptions=saves)
    what_if = make.find(case, "checkpoint_stall").what_if
    assert what_if.touches["stalls"] == pytest.approx(0.6 * case.steps.mean_ns, rel=1e-3)


def test_a_few_short_steps_at_the_end_hide_no_drift() -> None:
    """The last sixth counts, by its median: nine of its twenty steps are as short as the first."""
    case = course.drift(0.4)
    durations = case.steps.selection.duration_ns.copy()
    durations[-9:] = durations[0]
    selection = replace(case.steps.selection, duration_ns=durations)
    assert make.speaks(make.with_steps(case, selection=selection), "drift")
