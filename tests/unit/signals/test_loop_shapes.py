"""Steps and phases are found in loops of every shape, with no call in the loop."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch._dynamo.utils import counters

from tests.support import shapes
from tests.support.recording import assert_sound, record
from tests.support.shapes import compiled, fetching, few_batches, groups, held_out, updates

pytestmark = pytest.mark.usefixtures("one_thread")

Loop = Callable[[], None]


@pytest.mark.parametrize(
    ("loop", "train", "evaluation"),
    [
        (shapes.plain, 10, 0),
        (fetching.workers_persistent_two_epochs, 20, 0),
        (updates.accumulation_with_a_rest, 2, 0),
        (updates.accumulation_by_hand, 5, 0),
        (updates.scaler_with_an_infinite_gradient, 10, 0),
        (updates.gan, 10, 0),
        (few_batches.gan_without_loader, 10, 0),
        (few_batches.without_loader, 10, 0),
        (few_batches.one_batch_over_and_over, 100, 0),
        (few_batches.one_batch_a_few_times, 12, 0),
        (few_batches.gan_on_one_batch, 50, 0),
        (groups.batches_fetched_before_they_are_used, 5, 0),
        (groups.a_step_for_each_batch_of_a_group, 20, 0),
        (groups.groups_to_the_end_of_each_epoch, 20, 0),
        (groups.gan_in_groups, 20, 0),
        (groups.lbfgs_in_groups, 10, 0),
        (groups.two_updates_for_each_group, 10, 0),
        (groups.several_updates_on_each_batch, 10, 0),
        (groups.batches_that_are_skipped, 5, 0),
        (few_batches.loader_read_before_training, 10, 0),
        (held_out.without_loader_with_validation, 10, 6),
        (held_out.without_loader_with_a_teacher, 10, 0),
        (held_out.validation_inside_and_after, 20, 16),
        (held_out.validation_that_stops_early, 10, 2),
        (held_out.inference_before_training, 10, 4),
        (fetching.two_loaders_zipped, 10, 0),
        (updates.lbfgs_with_closure, 10, 0),
        (updates.checkpointed, 10, 0),
        (updates.optimizer_in_backward, 10, 0),
        (updates.gradient_penalty, 10, 0),
        (fetching.iterable_with_workers, 10, 0),
        (fetching.loader_in_another_thread, 10, 0),
        (fetching.one_batch_ahead, 10, 0),
        (fetching.broken_off_and_failed, 18, 0),
        (fetching.in_another_thread, 10, 0),
        (fetching.workers_out_of_order, 10, 0),
    ],
    ids=lambda value: value.__name__ if callable(value) else None,
)
def test_steps_are_found(tmp_path: Path, loop: Loop, train: int, evaluation: int) -> None:
    recorded = record(tmp_path, loop)
    assert_sound(recorded)
    assert (recorded.kinds.get("train", 0), recorded.kinds.get("eval", 0)) == (train, evaluation)


# Dynamo imports modules of torch that warn of their own deprecation.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("loop", "train", "evaluation"),
    [
        (compiled.compiled_model, 20, 4),
        (compiled.compiled_in_place, 10, 0),
        (compiled.compiled_step, 10, 0),
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


def test_micro_batches_belong_to_the_step_that_updates(tmp_path: Path) -> None:
    recorded = record(tmp_path, updates.accumulation_by_hand)
    assert recorded.count("fetches") == recorded.count("backwards") == [4] * 5
    assert recorded.count("samples") == [64] * 5


def test_an_update_that_was_left_out_is_a_step_and_is_counted(tmp_path: Path) -> None:
    recorded = record(tmp_path, updates.scaler_with_an_infinite_gradient)
    assert recorded.count("skipped_updates") == [0, 0, 0, 0, 0, 1, 0, 0, 0, 0]


@pytest.mark.parametrize("loop", [updates.gan, few_batches.gan_without_loader])
def test_both_optimizers_of_a_pair_belong_to_one_step(tmp_path: Path, loop: Loop) -> None:
    assert record(tmp_path, loop).count("optimizer_steps") == [2] * 10


def test_a_recomputed_forward_is_part_of_the_backward(tmp_path: Path) -> None:
    assert record(tmp_path, updates.checkpointed).count("forwards") == [1] * 10


def test_updates_inside_the_backward_are_counted(tmp_path: Path) -> None:
    assert record(tmp_path, updates.optimizer_in_backward).count("optimizer_steps") == [4] * 10


def test_every_backward_of_a_step_is_counted(tmp_path: Path) -> None:
    assert record(tmp_path, updates.gradient_penalty).count("backwards") == [2] * 10


def test_phases_lie_where_the_work_is(tmp_path: Path) -> None:
    recorded = record(tmp_path, shapes.plain)
    for row in recorded.train[4:]:
        assert min(row["data_wait_ns"], row["forward_ns"], row["backward_ns"], row["optimizer_ns"]) > 0, row
        assert row["gap_ns"] == row["communication_ns"] == 0


def test_a_world_that_answers_between_two_forwards_is_no_forward(tmp_path: Path) -> None:
    recorded = record(tmp_path, held_out.acting_in_a_world)
    assert_sound(recorded)
    assert (recorded.kinds, recorded.count("no_grad_forwards")) == ({"train": 10}, [1] * 10)
    assert min(recorded.count("gap_ns")[1:]) >= 5_000_000  # it is known from the first update on what trains


def test_epochs_and_batches_are_numbered(tmp_path: Path) -> None:
    recorded = record(tmp_path, fetching.workers_persistent_two_epochs)
    assert recorded.count("epoch") == [1] * 10 + [2] * 10
    assert recorded.count("batch") == [*range(10), *range(10)]
    assert set(recorded.count("loader")) == {0}


def test_queues_are_sampled_at_each_fetch_that_brings_a_batch(tmp_path: Path) -> None:
    run = record(tmp_path, fetching.workers_persistent_two_epochs).run
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
    ("loop", "fetches", "samples"),
    [
        (groups.a_step_for_each_batch_of_a_group, [5, 0, 0, 0, 0] * 4, [16] * 20),
        (groups.groups_to_the_end_of_each_epoch, [4, 0, 0, 0, 4, 0, 0, 0, 2, 0] * 2, [16] * 20),
        (groups.gan_in_groups, [4, 0, 0, 0] * 5, [16] * 20),
        (groups.two_updates_for_each_group, [4, 0] * 5, [32] * 10),
    ],
)
def test_the_first_step_of_a_group_waits_for_all_of_it(
    tmp_path: Path, loop: Callable[[], None], fetches: list[int], samples: list[int]
) -> None:
    recorded = record(tmp_path, loop)
    assert recorded.count("fetches") == fetches
    assert recorded.count("samples") == samples
    for number, wait_ns in zip(fetches, recorded.count("data_wait_ns"), strict=True):
        assert (wait_ns > 0) >= (number > 0)
