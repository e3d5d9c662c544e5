"""Predictions of changes to code: what is left is what such code takes, wherever that is known."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from collector.format.run import open_run
from profiler_server.analysis.data.fetches import compare_receiving
from profiler_server.analysis.operators.avoidable import find_slow_convolutions
from tests.support.cases import PLANTED, Plant, build_case_run, plan_of
from tests.support.diagnosing import advise
from tests.support.own_work import late, spend_operators
from tests.support.row_edits import Row
from tests.support.runs import HEALTHY_STEP_MS, MS
from tests.support.stacks import in_phase, library

STEP_MS = sum(HEALTHY_STEP_MS.values())


def update(tensors: Any, parameters: Any) -> Plant:
    entry = {"name": "AdamW", "foreach": False, "fused": None, "tensors": tensors, "parameters": parameters}
    return Plant(plan_of(optimizer=30.0), manifest={"facts": {"optimizers": [entry]}})


@pytest.mark.parametrize(
    ("tensors", "parameters", "left_ms"),
    [(400, 200_000, 2.9), (10, 6_000_000, 6.36), (True, 6, None), ("many", None, None)],
    ids=["many tensors", "many parameters", "a size that is no number", "sizes that are no numbers"],
)
def test_a_fused_update_takes_what_its_tensors_and_parameters_take(
    tmp_path: Path, tensors: Any, parameters: Any, left_ms: float | None
) -> None:
    found = advise(tmp_path / "run", update(tensors, parameters), "optimizer_loop")
    if left_ms is None:
        assert found.predicted_step_ns is None
        assert found.advice.endswith("How much it saves is not known beforehand. `stepscope run --try` measures it.")
        return
    usual = STEP_MS - HEALTHY_STEP_MS["optimizer"]
    assert found.predicted_step_ns == pytest.approx((usual + left_ms) * MS, rel=0.02)


def convolve(channels: int) -> Row:
    shapes = f"[[12,{channels},1,61],[12,8,1,61],[{channels},8,1,3],[],[]]"
    times = {"total_ns": 90, "self_ns": 90, "device_total_ns": 0, "device_self_ns": 0, "count": 1}
    return {"step": 11, "name": "aten::_slow_conv2d_backward", "type": "convolution", "input_shapes": shapes, **times}


def test_the_more_channels_the_less_float32_saves_of_a_convolution_without_a_library(tmp_path: Path) -> None:
    saved = []
    for channels in (4, 80, 4000):
        run = build_case_run(tmp_path / str(channels), Plant(tables={"operators": [convolve(channels)]}))
        saved.append(find_slow_convolutions(run.rank(0)).saved_frac)
    assert saved == pytest.approx([0.98, 0.75, 0.51], abs=0.01)


def test_shapes_that_cannot_be_read_count_as_usual_ones(tmp_path: Path) -> None:
    for number, shapes in enumerate((None, "", "[]", "[[", "[3]", '[["a"]]')):
        rows = [{**convolve(4), "input_shapes": shapes}]
        run = build_case_run(tmp_path / str(number), Plant(tables={"operators": rows}))
        found = find_slow_convolutions(open_run(run.path).rank(0))
        assert found.share_frac == 1.0
        assert found.saved_frac == pytest.approx(1 - 0.5 * 64 / 144)


def test_objects_that_the_loop_frees_go_with_those_that_are_sent(tmp_path: Path) -> None:
    plant = PLANTED["ipc_bound"]
    plan = {**plant.plan.phases_ms, "h2d": 8.0}
    rows = late(in_phase("h2d", 40), in_phase("forward", 100, library("f", "torch/x.py")))
    operators = {"operators": spend_operators(forward=4.0)}
    same = dataclasses.replace(plant, plan=dataclasses.replace(plant.plan, phases_ms=plan))
    freed = advise(tmp_path / "freed", dataclasses.replace(same, tables={"stacks": rows, **operators}), "ipc_bound")
    plain = advise(tmp_path / "plain", dataclasses.replace(same, tables=operators), "ipc_bound")
    assert "freeing the batch before 8.00 ms" in freed.measured
    assert "freeing" not in plain.measured
    assert freed.predicted_step_ns is not None
    assert plain.predicted_step_ns is not None
    assert plain.predicted_step_ns - freed.predicted_step_ns == pytest.approx(8 * MS, rel=0.25)


def take_over(took_ms: list[float]) -> Any:
    """Compare fetches that took so long with the work of one worker that always makes the next batch."""
    numbers = np.arange(len(took_ms))
    sent = 1000 * (numbers + 1) * MS
    stages = {
        "stage": ["read"] * len(took_ms),
        "replica": np.zeros(len(took_ms), np.int64),
        "epoch": np.ones(len(took_ms), np.int64),
        "batch": numbers,
        "start_ns": sent - 1000 * MS,
        "duration_ns": np.full(len(took_ms), 1000 * MS),
    }
    times = (np.array(took_ms) * MS).astype(np.int64)
    fetches = {"epoch": np.ones(len(took_ms), np.int64), "batch": numbers, "start_ns": sent, "duration_ns": times}
    return compare_receiving(pa.table(fetches), pa.table(stages))


def test_of_workers_that_are_always_busy_the_usual_batch_tells_what_a_free_interpreter_takes() -> None:
    found = take_over([2.0] * 30 + [60.0] * 9 + [2.0])
    assert found.idle_ns == pytest.approx(2 * MS)
    assert found.held_ns > 10 * MS


def test_samples_fetched_one_by_one_push_the_model_out_of_the_caches_of_their_own_thread_only(tmp_path: Path) -> None:
    plant = PLANTED["in_memory_fetch"]
    found = advise(tmp_path / "run", plant, "in_memory_fetch")
    computing_ms = sum(plant.plan.phases_ms[name] for name in ("forward", "backward", "optimizer"))
    left_ms = sum(plant.plan.phases_ms.values()) - plant.plan.phases_ms["data_wait"]
    assert found.predicted_step_ns is not None
    assert left_ms - 0.15 * computing_ms < found.predicted_step_ns / MS < left_ms
    assert found.shortens == ("data_wait", "forward", "backward", "optimizer")
