"""Which number a DataLoader has, also where the script makes it anew for every epoch, and how many samples a batch has."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from collector.context.loaders import LoaderRegistry, count_samples


def make_loader(length: int = 8, batch_size: int = 2) -> DataLoader[int]:
    return DataLoader(range(length), batch_size)


def test_loader_that_is_made_anew_goes_on_where_the_one_before_it_ended() -> None:
    loaders = LoaderRegistry()
    found = []
    for _ in range(3):
        loader = make_loader()
        found.append((loaders.begin_epoch(loader), loaders.number(loader), loaders.remade(loader)))
        del loader
    assert found == [(1, 0, 0), (2, 0, 1), (3, 0, 2)]


def test_loaders_that_live_side_by_side_have_their_own_numbers() -> None:
    loaders, first, second = LoaderRegistry(), make_loader(), make_loader()
    assert [loaders.number(first), loaders.number(second), loaders.number(first)] == [0, 1, 0]


def test_loader_of_other_data_or_batches_is_another() -> None:
    loaders, kept = LoaderRegistry(), []
    for loader in (make_loader(), make_loader(length=9), make_loader(batch_size=4)):
        kept.append(loaders.number(loader))
        del loader
    assert kept == [0, 1, 2]


def test_training_and_validation_that_are_both_made_anew_stay_apart() -> None:
    loaders = LoaderRegistry()
    for _ in range(3):
        train, validation = make_loader(length=90), make_loader(length=10)
        assert [loaders.number(train), loaders.number(validation)] == [0, 1]
        del train, validation


class Odd:
    """No DataLoader: whatever is asked of it fails."""

    def __getattr__(self, name: str) -> object:
        raise RuntimeError(name)


def test_what_is_no_dataloader_is_numbered_by_itself() -> None:
    loaders = LoaderRegistry()
    first, second = Odd(), Odd()
    assert [loaders.number(first), loaders.number(second), loaders.begin_epoch(second)] == [0, 1, 1]


BATCH = torch.zeros(16, 3)


class _Refusing:
    @property
    def shape(self) -> Any:
        raise RuntimeError("not now")


@pytest.mark.parametrize("batch", [BATCH, [BATCH, 1], (BATCH,), {"x": BATCH}, [{"x": (BATCH,)}]])
def test_the_first_tensor_tells(batch: Any) -> None:
    assert count_samples(batch) == 16


def test_a_list_of_plain_values_is_as_long_as_it_is() -> None:
    assert count_samples([["a", "b", "c"], BATCH]) == 3


@pytest.mark.parametrize("batch", [None, [], {}, torch.tensor(1.0), object(), _Refusing(), [_Refusing()]])
def test_what_cannot_be_told_is_none(batch: Any) -> None:
    assert count_samples(batch) == 0


def test_what_lies_deeper_than_asked_is_not_looked_at() -> None:
    assert count_samples([BATCH], depth=1) == 16
    assert count_samples([{"x": BATCH}], depth=1) == 0
