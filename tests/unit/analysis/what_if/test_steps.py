"""The what-if analysis of a job that is known by its steps: planted stragglers are found, and their cost is right."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from profiler_server.analysis.what_if.operations import ScheduleError
from profiler_server.analysis.what_if.replay import replay_job
from profiler_server.analysis.what_if.steps import JobSteps, choose_worst, weigh_steps
from tests.support.pipelines import CHUNKED, CHUNKS, PIPELINE
from tests.support.pipelines import make_job as make_pipeline
from tests.support.showing import show

MS = 1e6


@pytest.mark.parametrize(("ranks", "steps"), [(1, 50), (2, 4), (0, 0)])
def test_too_few_ranks_or_steps_are_told(ranks: int, steps: int) -> None:
    empty = np.ones((ranks, steps))
    found = weigh_steps(JobSteps(np.arange(ranks), empty, empty, {}))
    assert found.slowdown is None
    assert "two ranks with 5 steps" in found.reason


def test_a_job_whose_waiting_was_not_recorded_is_not_judged() -> None:
    job = make_two_ranks()
    found = weigh_steps(JobSteps(job.ranks, job.step_ns, np.zeros_like(job.step_ns), {}))
    assert found.slowdown is None
    assert "cannot be told apart" in found.reason


def test_the_worst_three_percent_are_chosen_by_score_then_by_number() -> None:
    assert choose_worst({0: 1.0, 1: 1.2, 2: 1.2}) == {1}
    assert choose_worst({rank: 1.0 + (rank == 50) for rank in range(100)}) == {50, 0, 1}
    assert len(choose_worst(dict.fromkeys(range(101), 1.0))) == 4


def make_two_ranks() -> JobSteps:
    """Rank 4 works 80 ms and rank 7 100 ms, 40 % of it forward; then both communicate for 20 ms, in the last step 40."""
    own = np.array([[80.0] * 5, [100.0] * 5]) * MS
    step = np.broadcast_to(own.max(axis=0) + np.array([20, 20, 20, 20, 40]) * MS, own.shape)
    return JobSteps(np.array([4, 7]), step.copy(), step - own, {"forward": own * 0.4, "gap": own * 0})


def test_two_ranks_have_the_figures_that_can_be_worked_out_by_hand() -> None:
    found = weigh_steps(make_two_ranks())
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
    found = weigh_steps(JobSteps(np.arange(2), own + 20 * MS, own * 0 + 20 * MS, {}))
    assert (found.slowdown, found.worker_share) == (1.0, None)


def test_a_step_that_is_long_on_all_ranks_blames_none_of_them() -> None:
    job = make_two_ranks()
    long = np.array([0, 0, 90_000.0, 0, 0]) * MS
    found = weigh_steps(JobSteps(job.ranks, job.step_ns + long, job.held_ns, {"forward": job.own_ns * 0.4 + long}))
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
        lines.append(show(weigh_steps(JobSteps(np.arange(shape[0]) + 3, step, held, phases))))
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
