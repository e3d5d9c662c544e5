"""Numbers of tensors are read without a copy, and subnormal ones are counted."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from collector.context.numbers import count_subnormals, take_some, view_numbers


@pytest.mark.parametrize(
    ("tensor", "is_read"),
    [
        (torch.ones(3), True),
        (torch.ones(3, requires_grad=True), True),
        (torch.ones(3, dtype=torch.float64), True),
        (torch.ones(3, dtype=torch.bfloat16), False),
        (torch.ones(0), False),
        (torch.ones(3).to_sparse(), False),
        (torch.ones(3, device="meta"), False),
        (torch.ones(3, dtype=torch.complex64).conj(), False),
    ],
)
def test_only_plain_numbers_on_the_host_are_read(tensor: torch.Tensor, is_read: bool) -> None:
    found = view_numbers(tensor)
    assert (found is not None) is is_read
    if found is not None:
        assert np.shares_memory(found, tensor.detach().numpy())


@pytest.mark.parametrize(
    ("dtype", "values", "count"),
    [
        (np.float32, [0.0, 1e-40, -1e-40, 1e-37, np.inf, np.nan], 2),
        (np.float64, [0.0, 1e-310, 1e-40], 1),
        (np.int64, [0, 1, 2], 0),
    ],
)
def test_subnormal_numbers_are_nearer_to_zero_than_normal_ones(dtype: type, values: list[float], count: int) -> None:
    assert count_subnormals(np.array(values, dtype)) == count


def test_some_numbers_are_spread_over_all() -> None:
    some = take_some(np.arange(10_000).reshape(100, 100), 64)
    assert 60 <= len(some) <= 64
    assert some[-1] > 9_000
    assert len({int(each) % 100 for each in some}) > 30


def test_a_tensor_that_was_read_can_still_be_resized_and_freed() -> None:
    tensor = torch.arange(12.0).reshape(3, 4)
    view = view_numbers(tensor.t()[1:])
    assert view is not None
    assert view.tolist() == tensor.t()[1:].tolist()
    del view
    tensor.untyped_storage().resize_(0)
    assert view_numbers(tensor) is None
    tensor.untyped_storage().resize_(48)
    assert view_numbers(tensor) is not None


def test_numbers_of_a_type_that_numpy_lacks_are_not_read() -> None:
    assert view_numbers(torch.zeros(3).to(torch.float8_e4m3fn)) is None
