"""Steps and phases are found in loops of every shape, with no call in the loop."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters

from tests.support import shapes
from tests.support.recording import Recorded, assert_sound, record
from tests.support.shapes import compiled, fetching, few_batches, groups, held_out, updates

Loop = Callable[[], None]
TWO_EPOCHS = {"epoch": [1] * 10 + [2] * 10, "batch": [*range(10), *range(10)], "loader": [0] * 20}
LOOPS: dict[Loop, tuple[int, int, dict[str, Any]]] = {
    shapes.plain: (10, 0, {"communication_ns": [0] * 10}),
    fetching.workers_persistent_two_epochs: (20, 0, TWO_EPOCHS),
    updates.accumulation_with_a_rest: (2, 0, {}),
    updates.accumulation_by_hand: (5, 0, {"fetches": [4] * 5, "backwards": [4] * 5, "samples": [64] * 5}),
    updates.scaler_with_an_infinite_gradient: (10, 0, {"skipped_updates": [0] * 5 + [1] + [0] * 4}),
    updates.gan: (10, 0, {"optimizer_steps": [2] * 10}),
    few_batches.gan_without_loader: (10, 0, {"optimizer_steps": [2] * 10}),
    few_batches.without_loader: (10, 0, {}),
    few_batches.one_batch_over_and_over: (100, 0, {}),
    few_batches.one_batch_a_few_times: (12, 0, {}),
    few_batches.gan_on_one_batch: (50, 0, {}),
    groups.batches_fetched_before_they_are_used: (5, 0, {}),
    groups.a_step_for_each_batch_of_a_group: (20, 0, {"fetches": [5, 0, 0, 0, 0] * 4, "samples": [16] * 20}),
    groups.groups_to_the_end_of_each_epoch: (20, 0, {"fetches": [*[4, 0, 0, 0] * 2, 2, 0] * 2, "samples": [16] * 20}),
    groups.gan_in_groups: (20, 0, {"fetches": [4, 0, 0, 0] * 5, "samples": [16] * 20}),
    groups.lbfgs_in_groups: (10, 0, {}),
    groups.two_updates_for_each_group: (10, 0, {"fetches": [4, 0] * 5, "samples": [32] * 10}),
    groups.several_updates_on_each_batch: (10, 0, {}),
    groups.batches_that_are_skipped: (5, 0, {}),
    few_batches.loader_read_before_training: (10, 0, {}),
    held_out.without_loader_with_validation: (10, 6, {}),
    held_out.without_loader_with_a_teacher: (10, 0, {}),
    held_out.validation_inside_and_after: (20, 16, {}),
    held_out.validation_that_stops_early: (10, 2, {}),
    held_out.inference_before_training: (10, 4, {}),
    held_out.acting_in_a_world: (10, 0, {"no_grad_forwards": [1] * 10}),
    fetching.two_loaders_zipped: (10, 0, {}),
    updates.lbfgs_with_closure: (10, 0, {}),
    updates.checkpointed: (10, 0, {"forwards": [1] * 10}),  # what is computed again is part of the backward
    updates.optimizer_in_backward: (10, 0, {"optimizer_steps": [4] * 10}),
    updates.gradient_penalty: (10, 0, {"backwards": [2] * 10}),
    fetching.iterable_with_workers: (10, 0, {}),
    fetching.loader_in_another_thread: (10, 0, {}),
    fetching.one_batch_ahead: (10, 0, {}),
    fetching.broken_off_and_failed: (18, 0, {}),
    fetching.in_another_thread: (10, 0, {}),
    fetching.workers_out_of_order: (10, 0, {}),
}
"""Training steps and evaluation batches of each, and columns of the steps."""


@pytest.fixture(scope="module")
def recall(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Loop], Recorded]:
    """Return the recording of a loop, made at the first call."""
    found: dict[Loop, Recorded] = {}

    def recall(loop: Loop) -> Recorded:
        if loop not in found:
            found[loop] = record(tmp_path_factory.mktemp("loop"), loop)
        return found[loop]

    return recall


@pytest.mark.parametrize("loop", LOOPS, ids=lambda loop: loop.__name__)
def test_steps_are_found(recall: Callable[[Loop], Recorded], loop: Loop) -> None:
    recorded, (train, evaluation, columns) = recall(loop), LOOPS[loop]
    assert_sound(recorded)
    assert (recorded.kinds.get("train", 0), recorded.kinds.get("eval", 0)) == (train, evaluation)
    assert {name: recorded.count(name) for name in columns} == columns


# Dynamo imports modules of torch that warn of their own deprecation.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("loop", "train", "evaluation"),
    [
        (compiled.compiled_model, 20, 4),
        (compiled.compiled_in_place, 10, 0),
        (compiled.compiled_step_for_long, 90, 0),
        (compiled.trained_then_compiled, 20, 0),
    ],
    ids=lambda value: value.__name__ if callable(value) else None,
)
def test_recording_changes_no_graph_and_no_break(tmp_path: Path, loop: Loop, train: int, evaluation: int) -> None:
    without = _count_graphs(loop)
    kinds = {}

    def recorded_loop() -> None:
        recorded = record(tmp_path, loop)
        assert_sound(recorded)
        kinds.update(recorded.kinds)

    assert _count_graphs(recorded_loop) == without
    assert (kinds.get("train", 0), kinds.get("eval", 0)) == (train, evaluation)


def _count_graphs(loop: Loop) -> tuple[int, int]:
    torch._dynamo.reset()
    counters.clear()
    loop()
    return counters["stats"]["unique_graphs"], sum(counters["graph_break"].values())


def test_phases_lie_where_the_work_is(recall: Callable[[Loop], Recorded]) -> None:
    for row in recall(shapes.plain).train[4:]:
        assert min(row["data_wait_ns"], row["forward_ns"], row["backward_ns"], row["optimizer_ns"]) > 0, row
        assert row["gap_ns"] == 0


def test_a_world_that_answers_between_two_forwards_is_no_forward(recall: Callable[[Loop], Recorded]) -> None:
    recorded = recall(held_out.acting_in_a_world)
    assert min(recorded.count("gap_ns")[1:]) >= 5_000_000  # it is known from the first update on what trains


def test_queues_are_sampled_at_each_fetch_that_brings_a_batch(recall: Callable[[Loop], Recorded]) -> None:
    run = recall(fetching.workers_persistent_two_epochs).run
    queues = run.table("queues").to_pylist()
    assert {row["capacity"] for row in queues} == {4}
    assert all(0 <= row["depth"] <= 4 for row in queues)
    # Not at the last request of an epoch, which finds that there is no more.
    requests = [(row["start_ns"], row["batch"]) for row in run.table("fetches").to_pylist()]
    assert [(row["start_ns"], row["batch"]) for row in queues] == requests
    assert len(requests) == 20


def test_a_model_that_comes_late_is_found_after_some_batches(tmp_path: Path) -> None:
    recorded = record(tmp_path, held_out.another_model_comes_late)
    assert_sound(recorded)
    assert len(recorded.train) == 10
    assert recorded.kinds["eval"] >= 20


@pytest.mark.parametrize(
    "loop",
    [
        groups.a_step_for_each_batch_of_a_group,
        groups.groups_to_the_end_of_each_epoch,
        groups.gan_in_groups,
        groups.two_updates_for_each_group,
    ],
)
def test_the_first_step_of_a_group_waits_for_all_of_it(recall: Callable[[Loop], Recorded], loop: Loop) -> None:
    recorded = recall(loop)
    for number, wait_ns in zip(recorded.count("fetches"), recorded.count("data_wait_ns"), strict=True):
        assert (wait_ns > 0) >= (number > 0)
