"""What the operations of a pipeline wait for: two stages with three micro-batches, and one stage of three chunks; and
operations that are those of no pipeline, or only fill the ends of a step."""

from __future__ import annotations

import pytest

from profiler_server.analysis.what_if.operations import (
    BACKWARD,
    CLIP,
    COLLECT,
    EMBEDDING,
    FORWARD,
    GATHER,
    NORM,
    SCATTER,
    SEPARATE,
    UPDATE,
    Job,
    ScheduleError,
    read_schedule,
)
from profiler_server.analysis.what_if.replay import Replay
from tests.support.pipelines import (
    CHUNKED,
    CHUNKS,
    MS,
    PIPELINE,
    SEND,
    SEND_BACK,
    TAKE,
    TAKE_BACK,
    list_groups,
    list_waits,
    make_job,
    name,
)


@pytest.fixture
def job() -> Job:
    return make_job(PIPELINE)


def test_a_computation_waits_for_the_one_before_it_and_for_what_it_is_sent(job: Job) -> None:
    schedule = read_schedule(job)
    assert list_waits(job, schedule, FORWARD, 0) == [set(), {(FORWARD, 0, 0)}, {(FORWARD, 1, 0)}]
    assert list_waits(job, schedule, FORWARD, 1) == [
        {(TAKE, 0, 1)},
        {(TAKE, 1, 1), (BACKWARD, 0, 1)},
        {(TAKE, 2, 1), (BACKWARD, 1, 1)},
    ]
    assert list_waits(job, schedule, BACKWARD, 0) == [
        {(TAKE_BACK, 0, 0), (FORWARD, 2, 0)},
        {(TAKE_BACK, 1, 0), (BACKWARD, 0, 0)},
        {(TAKE_BACK, 2, 0), (BACKWARD, 1, 0)},
    ]
    assert list_waits(job, schedule, BACKWARD, 1) == [{(FORWARD, n, 1)} for n in range(3)]


def test_a_transfer_waits_for_its_computation_and_the_first_of_the_backward_for_the_last_forward_but_one(
    job: Job,
) -> None:
    schedule = read_schedule(job)
    assert list_waits(job, schedule, SEND, 0) == [
        {(FORWARD, 0, 0)},
        {(FORWARD, 1, 0), (SEND, 0, 0)},
        {(FORWARD, 2, 0), (SEND, 1, 0)},
    ]
    assert list_waits(job, schedule, TAKE, 1) == [
        set(),
        {(FORWARD, 0, 1), (TAKE, 0, 1)},
        {(FORWARD, 1, 1), (TAKE, 1, 1)},
    ]
    assert list_waits(job, schedule, TAKE_BACK, 0) == [
        {(FORWARD, 1, 0)},
        {(BACKWARD, 0, 0), (TAKE_BACK, 0, 0)},
        {(BACKWARD, 1, 0), (TAKE_BACK, 1, 0)},
    ]
    # The last stage does no second forward before its first backward, so nothing holds its transfers.
    assert list_waits(job, schedule, SEND_BACK, 1)[0] == {(BACKWARD, 0, 1)}


def test_the_ends_of_a_transfer_meet_and_so_do_the_stages_at_the_end_of_a_step(job: Job) -> None:
    schedule = read_schedule(job)
    assert list_groups(job, schedule) == sorted(
        [
            *([(SEND, n, 0), (TAKE, n, 1)] for n in range(3)),
            *([(SEND_BACK, n, 1), (TAKE_BACK, n, 0)] for n in range(3)),
            [(EMBEDDING, 0, 0), (EMBEDDING, 0, 1)],
            [(CLIP, 0, 0), (CLIP, 0, 1)],
        ]
    )
    assert [name(job, schedule.groups[at][0])[0] for at in sorted(schedule.meets)] == [CLIP]


def test_a_step_ends_in_the_order_of_the_framework(job: Job) -> None:
    schedule = read_schedule(job)
    for stage in (0, 1):
        waits = [list_waits(job, schedule, kind, stage) for kind in (COLLECT, NORM, EMBEDDING, CLIP, UPDATE)]
        before = [BACKWARD, COLLECT, NORM, EMBEDDING, CLIP]
        assert waits == [[{(kind, 2 if kind == BACKWARD else 0, stage)}] for kind in before]


def test_a_replay_with_the_measured_lengths_takes_as_long_as_the_step(job: Job) -> None:
    schedule = read_schedule(job)
    lengths = job.duration_ns.copy()
    for rows in schedule.groups:
        arrival = max(float(job.start_ns[row, 0, 0]) for row in rows)
        for row in rows:
            lengths[row] = job.end_ns[row] - arrival
    assert Replay(job, schedule).run(lengths).tolist() == [30 * MS]


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


@pytest.mark.parametrize(
    ("times", "idle", "reason"),
    [
        ({(TAKE, 3, 1): (15.05, 15.5)}, None, "stage 1 has 4 forward-recv for 3 forward-compute"),
        ({(TAKE, 3, 1): (15.051, 15.5)}, (TAKE, 3, 1), ""),
        ({(SEND_BACK, 3, 1): (-1, 8.95)}, None, "stage 1 has 4 backward-send for 3 backward-compute"),
        ({(SEND_BACK, 3, 1): (-1, 8.949)}, (SEND_BACK, 3, 1), ""),
    ],
)
def test_what_lies_before_the_first_and_behind_the_last_computation_only_fills_the_step(
    times: dict[tuple[str, int, int], tuple[float, float]], idle: tuple[str, int, int] | None, reason: str
) -> None:
    job = make_job({**PIPELINE, **times})
    if idle is None:
        with pytest.raises(ScheduleError, match=reason):
            read_schedule(job)
        return
    assert [idle] in list_groups(job, read_schedule(job))


@pytest.mark.parametrize(
    ("gone", "reason"),
    [
        ((FORWARD, BACKWARD), "stage 1 computes nothing"),
        ((TAKE,), "stage 0 sends 3 times, stage 1 receives 0 times"),
        ((COLLECT, NORM, EMBEDDING, CLIP, UPDATE), "stage 1 does not end its steps"),
    ],
)
def test_what_is_no_pipeline_is_said(gone: tuple[str, ...], reason: str) -> None:
    times = {key: span for key, span in PIPELINE.items() if key[2] != 1 or key[0] not in gone}
    with pytest.raises(ScheduleError, match=reason):
        read_schedule(make_job(times))
