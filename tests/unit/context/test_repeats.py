"""Operators of a forward that compute the same are found in its graph, and no others are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from collector.context.repeats import find_repeats


def order(root: Any) -> list[Any]:
    """Return the nodes behind a root, each after the nodes of its inputs."""
    found: dict[Any, None] = {}

    def visit(node: Any) -> None:
        if node is None or node in found:
            return
        for after, _ in node.next_functions:
            visit(after)
        found[node] = None

    visit(root)
    return list(found)


def name_repeats(result: Tensor) -> list[str]:
    nodes = order(result.grad_fn)
    return [type(node).__name__ for node, again in zip(nodes, find_repeats(nodes), strict=True) if again]


WEIGHT, OTHER = nn.Parameter(torch.randn(6, 6)), nn.Parameter(torch.randn(6, 6))
BATCH, SHUFFLED = torch.randn(20, 6), torch.randn(20, 6)
FORM = nn.Linear(6, 6)


class Doubled(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, given: Tensor) -> Tensor:
        return 2 * given

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return 2 * gradients[0]


@pytest.mark.parametrize(
    ("compute", "repeated"),
    [
        (lambda: BATCH @ WEIGHT + BATCH @ WEIGHT, ["MmBackward0"]),
        (lambda: (BATCH @ WEIGHT).tanh() + (BATCH @ WEIGHT).tanh(), ["MmBackward0", "TanhBackward0"]),
        (lambda: FORM(BATCH) + FORM(BATCH) + FORM(BATCH), ["AddmmBackward0", "AddmmBackward0"]),
        (lambda: torch.exp(WEIGHT) @ OTHER + torch.exp(WEIGHT), ["ExpBackward0"]),
        (lambda: WEIGHT[0] * torch.tensor(3.0) + WEIGHT[0] * torch.tensor(3.0), ["MulBackward0"]),
        (lambda: BATCH @ WEIGHT + BATCH @ OTHER, []),
        (lambda: BATCH @ WEIGHT + SHUFFLED @ WEIGHT, []),
        (lambda: BATCH @ WEIGHT + BATCH.clone() @ WEIGHT, []),
        (lambda: WEIGHT.sum(0) + WEIGHT.sum(1), []),
        (lambda: WEIGHT.pow(2) + WEIGHT.pow(3), []),
        (lambda: WEIGHT * 2 + WEIGHT * 3, []),
        (lambda: (WEIGHT + 1) + (WEIGHT + 2), []),
        (lambda: (WEIGHT - BATCH[:6]) + (WEIGHT - SHUFFLED[:6]), []),
        (lambda: WEIGHT.T @ OTHER + WEIGHT.T, []),
        (lambda: functional.dropout(WEIGHT) + functional.dropout(WEIGHT), []),
        (lambda: torch.poisson(WEIGHT.abs()) + torch.normal(WEIGHT, 1.0) + torch.normal(WEIGHT, 1.0), []),
        (lambda: Doubled.apply(WEIGHT) + Doubled.apply(WEIGHT), []),
        (
            lambda: (
                functional.embedding(torch.tensor([1, 2]), WEIGHT) + functional.embedding(torch.tensor([1, 3]), WEIGHT)
            ),
            [],
        ),
        (
            lambda: (
                functional.embedding(torch.tensor([1, 2]), WEIGHT) + functional.embedding(torch.tensor([1, 2]), WEIGHT)
            ),
            ["EmbeddingBackward0"],
        ),
    ],
)
def test_the_same_operators_with_the_same_inputs_are_repeats(
    compute: Callable[[], Tensor], repeated: list[str]
) -> None:
    assert name_repeats(compute()) == repeated


def test_a_saved_tensor_with_a_hook_is_left_alone() -> None:
    calls = []

    def compute(given: Tensor) -> Tensor:
        calls.append(1)
        return (given @ WEIGHT).tanh() + (given @ WEIGHT).tanh()

    result = checkpoint(compute, BATCH, use_reentrant=False)
    assert name_repeats(result) == []
    assert len(calls) == 1, "nothing was computed again to find out"


def test_an_input_that_was_changed_since_is_no_repeat() -> None:
    batch = BATCH.clone()
    first = batch @ WEIGHT
    batch.add_(1)
    assert name_repeats(first + batch @ WEIGHT) == []


def test_nodes_whose_tensors_were_freed_are_no_repeats() -> None:
    result = (BATCH @ WEIGHT).tanh() + (BATCH @ WEIGHT).tanh()
    result.sum().backward()
    assert name_repeats(result) == []
