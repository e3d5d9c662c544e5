"""Which objects of a dataset are taken for transforms, and that they are put back."""

from __future__ import annotations

import functools
import pickle
from typing import Any

from torch import nn
from torch.utils.data import ConcatDataset, Subset

from collector.workers.tally import Rhythm, Tally
from collector.workers.transforms import TransformTimer, find_transforms
from tests.support.datasets import Augmented, Compose, Double, Samples, Sleep, add_one


class Child(Double):
    """Inherits its call."""


def find_names(dataset: Any) -> list[str]:
    return [found.name for found in find_transforms(dataset)]


def test_composed_transforms_are_found_in_order() -> None:
    assert find_names(Samples(transform=Compose(Sleep(1), Double(), add_one))) == [
        "Compose",
        "Sleep",
        "Double",
        "add_one",
    ]


def test_transforms_are_found_in_datasets_within_datasets() -> None:
    inner = ConcatDataset([Subset(Samples(transform=Double()), [0]), Samples(transform=functools.partial(add_one))])
    assert set(find_names(inner)) == {"Double", "add_one"}


def test_transforms_that_are_modules_are_found() -> None:
    assert find_names(Samples(transform=nn.Sequential(nn.Flatten(), nn.Identity()))) == [
        "Sequential",
        "Flatten",
        "Identity",
    ]


def test_a_plain_list_and_a_method_are_found() -> None:
    data = Augmented()
    data.__dict__["image_transforms"] = [Double(), add_one]
    assert set(find_names(data)) == {"Augmented.augment", "Double", "add_one"}


class Chain:
    """Composes under names of its own."""

    def __init__(self, *parts: Any) -> None:
        self.parts = list(parts)

    def __call__(self, value: Any) -> Any:
        for part in self.parts:
            value = part(value)
        return value


def test_transforms_are_found_whatever_the_attributes_are_called() -> None:
    data = Samples()
    data.__dict__["tf"] = Chain(Double(), add_one)
    assert find_names(data) == ["Chain", "Double", "add_one"]


def test_a_lambda_is_named_after_the_attribute_that_holds_it() -> None:
    data = Samples()
    data.__dict__["normalise"] = lambda value: value
    assert find_names(data) == ["normalise (lambda)"]


def test_a_timed_function_is_pickled_as_the_users_own() -> None:
    data = Samples(transform=add_one)
    timer = TransformTimer(data, Tally())
    timer.install()
    stand_in = data.__dict__["transform"]
    assert stand_in is not add_one
    assert pickle.loads(pickle.dumps(stand_in)) is add_one
    assert stand_in.__name__ == "add_one"
    timer.remove()
    assert data.__dict__["transform"] is add_one


def test_what_fetches_the_data_is_no_transform() -> None:
    data = Samples()
    data.__dict__.update(loader=add_one, open_file=add_one, client=Double(), samples=[1, 2], classes=["a"])
    assert find_names(data) == []


def test_a_dataset_without_transforms_has_none() -> None:
    assert find_names(Samples()) == []
    assert find_names(range(5)) == []


def test_a_ring_of_transforms_ends() -> None:
    ring = Compose()
    ring.transforms.append(ring)
    assert find_names(Samples(transform=ring)) == ["Compose"]


def test_an_inherited_call_is_timed_under_its_own_name_and_removed() -> None:
    data = Samples(transform=Compose(Double(), Child()))
    timer = TransformTimer(data, Tally())
    timer.install()
    assert data.transform(1) == 4
    timer.remove()
    assert {part.name: part.calls for part in timer.parts} == {"Compose": 1, "Double": 1, "Child": 1}
    assert "__call__" not in vars(Child)


def test_what_the_user_has_exchanged_meanwhile_stays() -> None:
    data = Samples(transform=add_one)
    timer = TransformTimer(data, Tally())
    timer.install()
    data.transform = max
    timer.remove()
    assert data.transform is max
    timer.install()
    assert data.transform is max


def test_own_times_sum_to_the_outermost_call() -> None:
    data = Samples(transform=Compose(Sleep(2), Compose(Sleep(1), Double())))
    tally = Tally()
    timer = TransformTimer(data, tally)
    timer.install()
    data.transform(1)
    timer.remove()
    assert sum(part.duration_ns for part in timer.parts) == tally.nested_ns
    assert tally.nested_ns > 3_000_000


def test_cheap_samples_are_timed_rarely_and_dear_ones_always() -> None:
    cheap, dear = Rhythm(), Rhythm()
    due = {"cheap": 0, "dear": 0}
    for _ in range(640):
        if cheap.is_due():
            due["cheap"] += 1
            cheap.learn(work_ns=32 * 1_000, samples=32, calls=0)
        if dear.is_due():
            due["dear"] += 1
            dear.learn(work_ns=32 * 60_000, samples=32, calls=0)
    assert due == {"cheap": 13, "dear": 640}
