"""What a call of an operator is read from: the texts of a trace, with every limit on what they may hold."""

from __future__ import annotations

import json
from typing import Any

import pytest

from collector.traces.call import Call, read_call


def read(dims: list[Any], types: list[str] | None = None, values: list[Any] | None = None) -> Call:
    call = read_call(json.dumps(dims), json.dumps(types), json.dumps(values))
    assert call is not None
    return call


@pytest.mark.parametrize(
    ("dims", "kind", "shape"),
    [
        ([2, 3], "float", (2, 3)),
        ([0], "float", (0,)),
        ([1] * 64, "float", (1,) * 64),
        ([1] * 65, "float", None),
        ([1 << 48], "float", (1 << 48,)),
        ([(1 << 48) + 1], "float", None),
        ([-1], "float", None),
        ([1.5], "float", None),
        ("text", "float", None),
        ([], "float", ()),
        *(([], kind, None) for kind in ("", "Scalar", "Int", "Bool", "Double", "None", "ScalarList")),
        ([2], "Scalar", (2,)),
    ],
)
def test_a_shape_is_read_or_refused(dims: Any, kind: str, shape: tuple[int, ...] | None) -> None:
    assert read([dims], [kind]).shape(0) == shape


def test_a_shape_without_a_type_counts_unless_it_is_empty() -> None:
    call = read([[2], [], [3]], ["float"])
    assert [call.shape(place) for place in range(4)] == [(2,), None, (3,), None]


@pytest.mark.parametrize(("count", "is_read"), [(100_000, True), (100_001, False)])
def test_a_call_with_too_many_arguments_is_not_read(count: int, is_read: bool) -> None:
    assert (read_call(json.dumps([0] * count), None, None) is not None) == is_read


@pytest.mark.parametrize("shapes", [None, "", "{}", "3", "[[", "[" * 5000])
def test_without_shapes_there_is_no_call(shapes: str | None) -> None:
    assert read_call(shapes, '["float"]', '["1"]') is None


def test_the_bytes_of_a_tensor_are_those_of_its_elements() -> None:
    call = read([[2, 3], [2, 3], [4], [], [7]], ["double", "c10::Half", "unheard of", "Scalar"])
    assert [call.tensor_bytes(place) for place in range(6)] == [48, 12, 16, 0, 28, 0]


def test_a_list_of_tensors_has_the_shapes_that_can_be_read() -> None:
    call = read([[[2, 3], [], 4, [-1], [5]], [2, 3], "text"], ["TensorList", "float", ""])
    assert call.list_of(0) == ((2, 3), (), (5,))
    assert [call.list_of(place) for place in (1, 2, 3)] == [(), (), ()]


def test_numbers_are_read_from_the_values() -> None:
    call = read([], [], ["[1, 2]", "3", "True", "[1, 2.5]", "", "no number", [4], None])
    assert [call.integers(place) for place in range(9)] == [(1, 2), (3,), None, None, None, None, (4,), None, None]


def test_truth_values_are_read_from_the_values() -> None:
    call = read([], [], ["True", "true", "1", "False", "false", "0", "2", ""])
    assert [call.flag(place) for place in range(9)] == [True, True, True, False, False, False, None, None, None]


def test_lists_of_truth_values_are_read_from_the_values() -> None:
    call = read([], [], ["[True, False]", "[1, 0, 0]", "[2]", "True", "", "[]"])
    assert [call.flags(place) for place in range(7)] == [
        (True, False),
        (True, False, False),
        None,
        None,
        None,
        (),
        None,
    ]
