"""The what-if analysis of two replicas that meet in one reduction, with figures that can be worked out by hand."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from collector.format.intervals import Floats, Ints
from profiler_server.analysis.what_if.operations import (
    BACKWARD,
    FORWARD,
    SCATTER,
    UPDATE,
    Job,
    Operation,
    ScheduleError,
    read_schedule,
)
from profiler_server.analysis.what_if.replay import measure_transfers, replay_job
from profiler_server.analysis.what_if.steps import choose_worst, weigh_steps
from tests.support.pipelines import CHUNKED, CHUNKS, PIPELINE
from tests.support.pipelines import make_job as make_pipeline
from tests.support.showing import show

MS = 1e6
KINDS = (BACKWARD, FORWARD, SCATTER, UPDATE)


def make_job(reduction_ms: tuple[float, ...] = (10, 10, 40), idle_ms: float = 0.0, offset_ms: float = 0.0) -> Job:
    """Replica 0 works 20 ms forward and replica 1 40 ms; both work 50 ms backward, reduce, and update for 5 ms.

    `idle_ms` passes before the update without an operation; the reduction of replica 0 ends `offset_ms` early.
    """
    forward = np.tile([20.0, 40.0], (len(reduction_ms), 1))
    begin = np.zeros_like(forward)
    met = (forward + 50).max(axis=1, keepdims=True)
    ends = np.broadcast_to(met + np.array(reduction_ms)[:, None], forward.shape).copy()
    late = ends + idle_ms
    ends[:, 0] -= offset_ms
    starts = np.stack([forward, begin, forward + 50, late])
    lengths = np.stack([np.full_like(forward, 50.0), forward, ends - (forward + 50), np.full_like(forward, 5.0)])
    operations = tuple(Operation(kind, 0, 0) for kind in KINDS)
    chunk = np.array([0, 0, 0, -1])
    return Job(operations, np.arange(len(reduction_ms)), starts * MS, lengths * MS, np.array([[4, 7]]), chunk, chunk)


def test_the_ideal_job_computes_as_the_mean_and_communicates_as_the_median() -> None:
    found = replay_job(make_job())
    # As it was: 40 + 50 + mean(10, 10, 40) + 5 = 115 ms. Ideal: 30 + 50 + 10 + 5 = 95 ms.
    assert found.slowdown == pytest.approx(115 / 95)
    assert found.waste_frac == pytest.approx(20 / 115)
    assert found.discrepancy_frac == pytest.approx(0.0)
    assert found.method == "replay"
    # With as long a forward on both: 30 + 50 + 20 + 5 = 105 ms. One stage is even as it is.
    assert (found.even_work_frac, found.even_stages_frac) == pytest.approx((10 / 115, 0.0))


def test_each_kind_of_operation_is_weighed_alone() -> None:
    by_operation = replay_job(make_job()).by_operation
    assert by_operation == pytest.approx({BACKWARD: 1.0, FORWARD: 105 / 95, SCATTER: 105 / 95, UPDATE: 1.0})


def test_the_slow_rank_is_blamed_and_mending_it_gains_what_it_is_slower_than_the_mean() -> None:
    found = replay_job(make_job())
    assert found.by_rank == pytest.approx({4: 105 / 95, 7: 115 / 95})
    assert found.mend_rank_gain_ns == pytest.approx({4: 0.0, 7: 10 * MS})
    assert found.worker_share == pytest.approx(10 / 20)
    assert found.by_stage == pytest.approx({0: 115 / 95})
    assert found.stage_share == pytest.approx(1.0)


def test_a_job_that_loses_nothing_has_no_shares_of_the_loss() -> None:
    job = make_job((10, 10, 10))
    alike = Job(job.operations, job.steps, job.start_ns.copy(), job.duration_ns.copy(), job.ranks, job.chunk, job.depth)
    for array in (alike.start_ns, alike.duration_ns):
        array[:, :, 0] = array[:, :, 1]
    found = replay_job(alike)
    assert found.slowdown == pytest.approx(1.0)
    assert (found.worker_share, found.stage_share) == (None, None)


@pytest.mark.parametrize(("idle_ms", "is_told"), [(5.7, True), (5.8, False)])
def test_steps_that_are_five_percent_longer_than_their_operations_are_not_judged(idle_ms: float, is_told: bool) -> None:
    found = replay_job(make_job(idle_ms=idle_ms))  # 5.75 ms are 5 % of 115 ms
    assert (found.slowdown is not None) == is_told
    assert found.discrepancy_frac == pytest.approx(idle_ms / 115)


@pytest.mark.parametrize(("offset_ms", "length_ms"), [(4.0, 6.0), (19.0, -9.0), (20.0, 0.0), (25.0, 0.0)])
def test_a_transfer_lasts_from_the_last_arrival_but_ten_milliseconds_below_nothing_are_nothing(
    offset_ms: float, length_ms: float
) -> None:
    job = make_job((10, 10, 10), offset_ms=offset_ms)
    lengths = measure_transfers(job, read_schedule(job))
    assert lengths[2] / MS == pytest.approx(np.tile([length_ms, 10.0], (3, 1)))
    assert lengths[[0, 1, 3]].tolist() == job.duration_ns[[0, 1, 3]].tolist()


def test_when_a_job_began_is_no_matter() -> None:
    job = make_job()
    later = Job(job.operations, job.steps, job.start_ns + 1e9, job.duration_ns, job.ranks, job.chunk, job.depth)
    found = replay_job(later)
    assert found.slowdown == pytest.approx(115 / 95)
    assert found.discrepancy_frac == pytest.approx(0.0)


@pytest.mark.parametrize(("ranks", "steps"), [(1, 50), (2, 4), (0, 0)])
def test_too_few_ranks_or_steps_are_told(ranks: int, steps: int) -> None:
    empty = np.ones((ranks, steps))
    found = weigh_steps(np.arange(ranks), empty, empty, {})
    assert found.slowdown is None
    assert "two ranks with 5 steps" in found.reason


def test_a_job_whose_waiting_was_not_recorded_is_not_judged() -> None:
    ranks, step_ns, held_ns, _ = make_two_ranks()
    found = weigh_steps(ranks, step_ns, np.zeros_like(held_ns), {})
    assert found.slowdown is None
    assert "cannot be told apart" in found.reason


def test_the_worst_three_percent_are_chosen_by_score_then_by_number() -> None:
    assert choose_worst({0: 1.0, 1: 1.2, 2: 1.2}) == {1}
    assert choose_worst({rank: 1.0 + (rank == 50) for rank in range(100)}) == {50, 0, 1}
    assert len(choose_worst(dict.fromkeys(range(101), 1.0))) == 4


def make_two_ranks() -> tuple[Ints, Floats, Floats, dict[str, Floats]]:
    """Rank 4 works 80 ms and rank 7 100 ms, 40 % of it forward; then both communicate for 20 ms, in the last step 40."""
    own = np.array([[80.0] * 5, [100.0] * 5]) * MS
    step = np.broadcast_to(own.max(axis=0) + np.array([20, 20, 20, 20, 40]) * MS, own.shape)
    return np.array([4, 7]), step.copy(), step - own, {"forward": own * 0.4, "gap": own * 0}


def test_two_ranks_have_the_figures_that_can_be_worked_out_by_hand() -> None:
    found = weigh_steps(*make_two_ranks())
    # As it was: 100 + mean(20, …, 40) = 124 ms. Ideal: mean(80, 100) + median(20, …, 40) = 110 ms.
    assert found.slowdown == pytest.approx(124 / 110)
    assert found.waste_frac == pytest.approx(14 / 124)
    assert found.discrepancy_frac == pytest.approx(0.0)
    assert found.by_rank == pytest.approx({4: 110 / 110, 7: 120 / 110})
    # Forward of rank 7 lies 4 ms over the mean of both.
    assert found.by_operation == pytest.approx({"forward": 114 / 110, "communication": 114 / 110})
    assert found.mend_rank_gain_ns is None
    assert found.worker_share == pytest.approx(10 / 14)
    assert found.method == "steps"


def test_ranks_that_are_equal_have_no_share_of_a_loss() -> None:
    own = np.full((2, 5), 80 * MS)
    found = weigh_steps(np.arange(2), own + 20 * MS, own * 0 + 20 * MS, {})
    assert (found.slowdown, found.worker_share) == (1.0, None)


def test_a_step_that_is_long_on_all_ranks_blames_none_of_them() -> None:
    ranks, step_ns, held_ns, phases_ns = make_two_ranks()
    long = np.array([0, 0, 90_000.0, 0, 0]) * MS
    found = weigh_steps(ranks, step_ns + long, held_ns, {"forward": phases_ns["forward"] + long})
    assert found.slowdown is not None
    assert found.by_rank is not None
    assert found.by_operation is not None
    assert found.by_rank[4] == pytest.approx(1.0)
    assert max([*found.by_rank.values(), *found.by_operation.values()]) <= found.slowdown


def test_what_is_weighed_of_drawn_steps(golden: Callable[[str, str], None]) -> None:
    chance, lines = random.Random(1), []
    for _ in range(30):
        shape = chance.choice((1, 2, 3, 40)), chance.choice((4, 5, 9))
        own = np.array([[chance.choice((70, 80, 80, 90, 160)) * MS for _ in range(shape[1])] for _ in range(shape[0])])
        held = own.max(axis=0) - own + chance.choice((0, 5, 20)) * MS
        step = (own + held) * chance.choice((1.0, 1.0, 1.06, 0.9))
        phases = {"forward": own * 0.4, "h2d": own * 0.0, "backward": own[:, ::-1] * 0.6}
        lines.append(show(weigh_steps(np.arange(shape[0]) + 3, step, held, phases)))
    golden("drawn/what-if-steps", "\n".join(lines) + "\n")


def test_what_is_replayed_of_drawn_pipelines(golden: Callable[[str, str], None]) -> None:
    chance, lines = random.Random(2), []
    for _ in range(16):
        times, chunks = chance.choice(((PIPELINE, None), (CHUNKED, CHUNKS)))
        job = make_pipeline(times, chunks, replicas=chance.choice((1, 2, 3)))
        factor = [chance.choice((*[1.0] * 12, 1.02, 0.97, 1.2)) for _ in job.duration_ns.ravel()]
        job = replace(job, duration_ns=job.duration_ns * np.reshape(factor, job.duration_ns.shape))
        try:
            lines.append(show(replay_job(job)))
        except ScheduleError as error:
            lines.append(str(error))
    golden("drawn/what-if-pipelines", "\n".join(lines) + "\n")
