"""What the collector noted in rank.json: read whatever that holds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from collector.estimating.model import Job, LoopModel
from collector.estimating.simulation import simulate
from profiler_server.analysis.data.prediction import predict_fed_step
from profiler_server.analysis.recorded_facts import read_probe
from profiler_server.facts.loading import InputFreeStep, MeasuredLoop
from tests.support.must import must
from tests.support.runs import MS

FREE = InputFreeStep(21.0 * MS, 20.5 * MS, 21.5 * MS, 12, 3, 400 * MS)


def noted(*rounds: list[int], **fields: Any) -> dict[str, Any]:
    entries = [{"first_step": 30, "step_ns": steps, "waited_ns": 5} for steps in rounds]
    return {"probe": {"rounds": entries, "cost_ns": 400 * MS, **fields}}


def test_the_mean_covers_all_rounds_and_the_range_surrounds_it() -> None:
    found = must(read_probe(noted([20 * MS, 22 * MS], [19 * MS, 23 * MS, 21 * MS])))
    assert (found.step_ns, found.steps, found.rounds, found.cost_ns) == (21 * MS, 5, 2, 400 * MS)
    assert found.low_ns < 20.5 * MS
    assert found.high_ns > 21.5 * MS


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"probe": None},
        {"probe": {"rounds": "many"}},
        {"probe": {"rounds": [None, {"step_ns": 7}, {"step_ns": [True, -1, "x", None, 2.5, 10**15]}]}},
    ],
)
def test_what_is_damaged_or_too_little_is_no_measurement(facts: dict[str, Any]) -> None:
    assert read_probe(facts) is None


def starved(workers: int) -> LoopModel:
    return LoopModel(
        batches=(Job(80.0 * MS, 0.0),) * 40, steps=(Job(20.0 * MS, 0.0),) * 40, workers=workers, prefetch=2, in_order=True,
        cores=8.0, others=0.0, extra_ns=0.0,
    )  # fmt: skip


def loop_of(model: LoopModel) -> MeasuredLoop:
    step_ns = simulate(model).step_ns
    return MeasuredLoop(model, 1.0, step_ns, 20.0 * MS, 1.0, False, 0.0)


def test_the_measured_step_stands_for_a_change_after_which_nothing_waits() -> None:
    before = starved(1)
    loop, after = loop_of(before), replace(before, workers=8)
    found = must(predict_fed_step(loop, after, FREE, 3.0 * MS))
    assert (found.step_ns, found.low_ns) == (21.0 * MS, 20.5 * MS)
    assert 21.5 * MS <= found.high_ns < 24.0 * MS
    assert predict_fed_step(loop_of(before), replace(before, workers=2), FREE, 3.0 * MS) is None


def test_what_comes_with_the_start_of_an_epoch_stays() -> None:
    before = replace(starved(1), extra_ns=2.0 * MS)
    found = must(predict_fed_step(loop_of(before), replace(before, workers=8), FREE, 3.0 * MS))
    assert found.step_ns == 23.0 * MS


def test_the_part_that_receives_the_batch_is_that_of_the_measured_steps() -> None:
    rows = [{"kind": "train" if step else "startup", "step": step, "data_wait_ns": step * MS} for step in range(60)]
    found = must(read_probe(noted([20 * MS] * 4), pa.Table.from_pylist(rows)))
    assert found.receiving_ns == 31.5 * MS  # steps 30 to 33
