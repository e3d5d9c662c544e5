"""Operations that are those of no pipeline, or that only fill the ends of a step."""

from __future__ import annotations

import pytest

from profiler_server.analysis.what_if.operations import (
    BACKWARD,
    CLIP,
    COLLECT,
    EMBEDDING,
    FORWARD,
    NORM,
    UPDATE,
    ScheduleError,
    read_schedule,
)
from tests.support.pipelines import (
    PIPELINE,
    SEND_BACK,
    TAKE,
    list_groups,
    make_job,
)


@pytest.mark.parametrize(("late_ms", "is_idle"), [(0.05, False), (0.051, True)])
def test_a_receipt_that_begins_after_the_last_computation_only_fills_the_step(late_ms: float, is_idle: bool) -> None:
    job = make_job({**PIPELINE, (TAKE, 3, 1): (15 + late_ms, 15.5)})
    if not is_idle:
        with pytest.raises(ScheduleError, match=r"stage 1 has 4 forward-recv for 3 forward-compute"):
            read_schedule(job)
        return
    assert [(TAKE, 3, 1)] in list_groups(job, read_schedule(job))


@pytest.mark.parametrize(("early_ms", "is_idle"), [(0.05, False), (0.051, True)])
def test_a_sending_that_ends_before_the_first_computation_only_fills_the_step(early_ms: float, is_idle: bool) -> None:
    times = {**PIPELINE, (SEND_BACK, 3, 1): (-1, 9 - early_ms)}
    if not is_idle:
        with pytest.raises(ScheduleError, match=r"stage 1 has 4 backward-send for 3 backward-compute"):
            read_schedule(make_job(times))
        return
    job = make_job(times)
    assert [(SEND_BACK, 3, 1)] in list_groups(job, read_schedule(job))


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
