"""What the collectives of a stage wait for whose model is cut into chunks."""

from __future__ import annotations

from profiler_server.analysis.what_if.operations import (
    BACKWARD,
    FORWARD,
    GATHER,
    SCATTER,
    SEPARATE,
    UPDATE,
    read_schedule,
)
from tests.support.pipelines import (
    CHUNKED,
    CHUNKS,
    list_groups,
    list_waits,
    make_job,
)


def test_parameters_are_gathered_before_their_chunk_and_gradients_reduced_after_it() -> None:
    job = make_job(CHUNKED, CHUNKS, replicas=2)
    schedule = read_schedule(job)
    assert list_waits(job, schedule, GATHER, 0) == [set(), {(GATHER, 0, 0)}, {(GATHER, 1, 0)}]
    assert list_waits(job, schedule, FORWARD, 0) == [
        {(GATHER, 1, 0)},
        {(FORWARD, 0, 0)},
        {(FORWARD, 1, 0), (GATHER, 2, 0)},
    ]
    assert list_waits(job, schedule, SCATTER, 0) == [
        {(BACKWARD, 0, 0), (GATHER, 2, 0)},  # collectives take turns
        {(BACKWARD, 2, 0), (SCATTER, 0, 0)},
        {(SCATTER, 1, 0)},
    ]
    assert list_waits(job, schedule, SEPARATE, 0) == [{(BACKWARD, 2, 0), (SCATTER, 2, 0)}]
    assert list_waits(job, schedule, UPDATE, 0) == [{(SEPARATE, 0, 0)}]
    alone = [[(kind, n, 0)] for kind in (GATHER, SCATTER) for n in range(3)]
    assert list_groups(job, schedule) == sorted([*alone, [(SEPARATE, 0, 0)]])
    assert schedule.meets == set(range(7))


def test_without_another_replica_nothing_is_gathered_or_reduced() -> None:
    job = make_job(CHUNKED, CHUNKS)
    schedule = read_schedule(job)
    assert schedule.groups == []
    assert list_waits(job, schedule, UPDATE, 0) == [{(BACKWARD, 2, 0)}]
    assert list_waits(job, schedule, SCATTER, 0) == [set()] * 3


def test_gradients_that_are_reduced_at_the_end_of_the_step_are_reduced_one_after_another() -> None:
    times = {key: span for key, span in CHUNKED.items() if key[0] != SEPARATE}
    job = make_job(times, CHUNKS, replicas=2)
    schedule = read_schedule(job)
    assert list_waits(job, schedule, SCATTER, 0) == [
        {(BACKWARD, 2, 0), (GATHER, 2, 0)},
        {(SCATTER, 0, 0)},
        {(SCATTER, 1, 0)},
    ]
    assert list_waits(job, schedule, UPDATE, 0) == [{(SCATTER, 2, 0)}]
