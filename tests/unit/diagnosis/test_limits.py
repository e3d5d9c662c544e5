"""Every threshold is driven from just below and just above, through the rule, the reading or the verdict that uses it.

The figures stand here once more on purpose: a threshold that moves by accident fails its test.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pytest

from collector.format.steps import read_integers
from profiler_server.diagnosis.limits import list_limits
from profiler_server.diagnosis.ranking import Fixed, make_claim
from profiler_server.diagnosis.verdict import find_bound
from profiler_server.diagnosis.what_if import shorten_step
from profiler_server.facts.case import Case, Finding, Rule, Text
from profiler_server.facts.steps import Held, Interruptions, SlowConvolutions
from tests.support import facts as make
from tests.unit.diagnosis.edges import (
    compare,
    course,
    data,
    device,
    gains,
    knobs,
    lines,
    loading,
    meetings,
    noted,
    replay,
    steps,
    stragglers,
    thread,
    traces,
    waiting,
    window,
)
from tests.unit.diagnosis.edges.base import STEPS, Edge, base

EDGES: Mapping[str, Edge] = {
    name: edge
    for family in (
        *(waiting, gains, loading, device, thread, course, noted, window, replay, steps, data, traces, compare),
        *(stragglers, meetings, lines, knobs),
    )
    for name, edge in family.EDGES.items()
}
FIGURES: Mapping[str, object] = {
    "DRIFT_PARTS": 6,
    "LEAST_FETCHES": 20,
    "FEW_FETCHES": 3,
    "MODEL_ERROR": 0.08,
    "CONTENTION_ERROR": 0.25,
    "OTHERS_ERROR": 0.3,
    "OTHERS_LEAST": 0.05,
    "DELAY_ERROR": 0.25,
    "SLOWDOWN_ERROR": 0.1,
    "LEAST_KEPT": 0.3,
    "UNRECORDED_FRAC": 0.12,
    "NEAR_FRAC": 0.02,
    "DELAYS": (0.5, 1.5),
    "USUAL_RECEIVE_NS": 1000000.0,
    "SURE_NAME_FRAC": 0.6,
    "STEPS_RATIO": 2.0,
    "MOST_CORRELATED": 0.8,
    "VOLTA": 7,
    "AMPERE": 8,
    "FLOAT64_SAVED_FRAC": 0.5,
    "SUBNORMAL_FRAC": 0.25,
    "LARGE_FLOPS": 10_000_000,
    "SLOW_FLOPS_PER_NS": 10.0,
    "TRACEBACK_NS": (30000.0, 55000.0, 190000.0),
    "MOST_OF_FORWARD": 0.9,
    "COPY_BYTES_PER_NS": 4.0,
    "LEAST_OF_DELAY": 0.6,
    "MOST_OF_DELAY": 1.25,
    "SHIFT_CHANCE": 0.001,
    "CERTAIN_LOSS": 0.5,
    "TENSORS_SEND_NS": 1_000_000,
    "CACHED_BYTES_PER_S": 1000000000.0,
    "INDEXED_LEFT_FRAC": 0.06,
    "CACHES_FRAC": 0.15,
    "LOOKUP_FRAC": 0.05,
    "COPIED_BYTES_PER_S": 5000000000.0,
    "CALL_RETURN_NS": 5000.0,
    "LAG_NS": 10000.0,
    "GAP_NS": 2000.0,
    "COPY_CALL_NS": 5000,
    "LEAST_TRIED_FRAC": 0.005,
    "KEPT_GAIN": 0.5,
    "CAPS_MIB": (5, 10, 25, 50, 100),
    "TINY_FACTOR": 0.3,
    "ALIGNED": 8,
    "MOST_DEPENDENCE": 0.25,
    "NOTED_FRAC": 0.005,
    "WORTH_FRAC": 0.01,
    "START_UP_NS": 3_000_000_000,
    "START_UP_FRAC": 0.05,
    "LONG_START_UP_NS": 60_000_000_000,
    "LATE_SAMPLE_NS": 100_000_000,
    "COVERED_PRODUCTS_FRAC": 0.9,
    "LEAST_PRODUCTS_FRAC": 0.2,
    "BACKGROUND_SAVED_FRAC": 0.95,
    "COLD_FRAC": 0.05,
    "FUSED_UPDATE_NS": 300_000,
    "FUSED_TENSOR_NS": 6000,
    "FUSED_PARAMETER_NS": 1.0,
    "UNUSED_STEPS": 3,
    "UNUSED_PART": 0.5,
    "LEAST_FUSED": 0.6,
    "MOST_FUSED": 1.7,
    "RARER_STEPS": 50,
    "LEAST_UPDATE_SAVED": 0.01,
    "LOOP_SAVED": (0.6, 0.36, 0.9),
    "LEAST_LOW_FRAC": 0.1,
    "NAMED_WAIT_FRAC": 0.15,
    "MOST_DOUBT_FRAC": 0.25,
    "EASED_FRAC": 0.3,
    "UNSEEN_DEVICE": 0.6,
    "LESS_FRAC": 0.9,
    "OTHER_FRAC": 0.03,
    "ALIKE_RATIO": 1.03,
    "WORST_PERCENT": 3,
    "KEPT_PERCENT": 75,
    "STILL_NS": 10**9,
    "FILLING_NS": 50_000,
    "SETTLES_S": 10.0,
    "MOST_HOT": 2,
    "UNKNOWN_SMALL_FRAC": 0.25,
    "REDUCED_FRAC": 0.2,
    "PARALLEL_NS": 100_000,
    "MODEL_WEIGHT": 0.5,
    "KNOWN_WEIGHT": 2.0,
    "NEIGHBOURS_FRAC": 0.6,
    "HOTSPOT_FRAC": 0.05,
    "LEAST_DENSE": 20,
    "JOINED_NS": 5_000_000,
    "NEXT_STEPS": 4,
    "LONGER_SAVED_FRAC": 2 / 3,
}
"""Figures that predictions are made with, and limits that no single quantity crosses; some have a test of their own below."""


def agreeing(share: float) -> str:
    """Return the words of a verdict with which this share of the steps agrees."""
    case = split_waits(0.3, share)
    return find_bound(case).confidence


def split_waits(wait: float, share: float) -> Case:
    """Let this share of the steps wait for data so long, and the others not at all; in stretches of 25 steps."""
    waits = np.where(np.arange(STEPS) < share * STEPS, wait, 0.0)
    return make.split_step(base(), data_wait=waits)


def test_every_limit_is_tested() -> None:
    assert list_limits().keys() == {*EDGES, *FIGURES}
    assert EDGES.keys() & FIGURES.keys() == set()


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_is_what_it_is_said_to_be(name: str) -> None:
    assert list_limits()[name] == FIGURES[name]


@pytest.mark.parametrize("name", EDGES)
def test_the_threshold_lies_where_it_is_said_to(name: str) -> None:
    edge = EDGES[name]
    assert not edge.drive(edge.at * 0.999), "it speaks below its threshold"
    assert edge.drive(edge.at * 1.001), "it is silent above its threshold"


@pytest.mark.parametrize(("name", "drive"), [*stragglers.ALSO, *meetings.ALSO])
def test_other_decisions_have_the_same_threshold(name: str, drive: Callable[[float], bool]) -> None:
    assert not drive(EDGES[name].at * 0.999)
    assert drive(EDGES[name].at * 1.001)


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
    finding = Finding(Text(*"tmtacf"), (), what_if=what_if, doubt_frac=10.0)
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


def test_nobody_is_told_to_factorise_in_single_precision() -> None:
    case = device.doubles(1.0)
    factorising = make.with_steps(case, kinds=replace(case.steps.kinds, factorises=True))
    assert make.speaks(case, "float64")
    assert not make.speaks(factorising, "float64")


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
