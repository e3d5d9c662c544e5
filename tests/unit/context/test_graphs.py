"""What is computed more than once is found in the graphs of backwards, and nothing else is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from collector.context.graphs import Sweeps, WorkLook, find_edge, find_repeats, find_spare, mark_run, read_number, walk


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
MASK = (torch.rand(200, 40) > 0.5).float()
WIDE, SCALE = nn.Parameter(torch.randn(200, 40)), nn.Parameter(torch.rand(200, 1))


def round_weights() -> Tensor:
    """Round as quantised training does: the gradient passes through."""
    return WIDE + (WIDE.round(decimals=2) - WIDE).detach()


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
        (
            lambda: torch._weight_norm(WIDE, SCALE) + torch._weight_norm(WIDE, SCALE),
            ["WeightNormInterfaceBackward0"],
        ),
        (lambda: torch.native_dropout(WIDE, 0.1, True)[0] + torch.native_dropout(WIDE, 0.1, True)[0], []),
        (lambda: FORM(BATCH) + FORM(BATCH) + FORM(BATCH), ["AddmmBackward0", "AddmmBackward0"]),
        (lambda: torch.exp(WEIGHT) @ OTHER + torch.exp(WEIGHT), ["ExpBackward0"]),
        (lambda: WEIGHT[0] * torch.tensor(3.0) + WEIGHT[0] * torch.tensor(3.0), ["MulBackward0"]),
        (lambda: BATCH @ WEIGHT + BATCH @ OTHER, []),
        (lambda: BATCH @ WEIGHT + SHUFFLED @ WEIGHT, []),
        (lambda: BATCH @ WEIGHT + BATCH.clone() @ WEIGHT, ["MmBackward0"]),
        (lambda: (MASK * WIDE) + (MASK.clone() * WIDE), []),
        (lambda: WEIGHT.sum(0) + WEIGHT.sum(1), []),
        (lambda: WEIGHT.pow(2) + WEIGHT.pow(3), []),
        (lambda: WEIGHT * 2 + WEIGHT * 3, []),
        (lambda: (WEIGHT + 1) + (WEIGHT + 2), []),
        (lambda: (WIDE + 1).square() + (WIDE + 1).square(), ["AddBackward0", "PowBackward0"]),
        (lambda: (WIDE + 1).square() + (WIDE + 2).square(), []),
        (
            lambda: Doubled.apply(WIDE.exp()).square() + Doubled.apply(WIDE.exp()).square(),
            ["ExpBackward0", "DoubledBackward", "PowBackward0"],
        ),
        (lambda: round_weights().square() + round_weights().square(), ["AddBackward0", "PowBackward0"]),
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


def sweep(step: Callable[[Sweeps], object]) -> dict[str, Any] | None:
    """Return what is found in the backwards of a step."""
    sweeps, times = Sweeps(), Counter[int]()
    original = torch.autograd._engine_run_backward

    def engine(roots: Any, *args: Any, **kwargs: Any) -> Any:
        walked = walk([edge for root in roots if (edge := find_edge(root)) is not None], 1000)
        inputs = args[3] or ()
        numbers = [
            read_number(node, variable)
            for (node, _, variable), runs in zip(walked, mark_run(walked, inputs), strict=True)
            if runs and variable is None
        ]
        nodes = [(number, times[number], True) for number in numbers]
        sweeps.add(roots if inputs else None, inputs, "train.py:7", nodes)
        times.update(numbers)
        return original(roots, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        for module in (torch.autograd, torch.autograd.graph):
            patch.setattr(module, "_engine_run_backward", engine)
        patch.setattr(torch._tensor, "_engine_run_backward", engine, raising=False)
        step(sweeps)
    return sweeps.describe()


def add_to_the_same(sweeps: Sweeps, ends: bool = False) -> None:
    shared = (BATCH @ WEIGHT).tanh()
    shared.sum().backward(retain_graph=True)
    if ends:
        sweeps.end()
    shared.mean().backward()


def take_in_turn(sweeps: Sweeps, parts: int = 1) -> None:
    x, y = torch.randn(5, requires_grad=True), torch.randn(5, requires_grad=True)
    made = torch.stack([x, y], 1) @ WEIGHT[:2]
    for part in made.tanh().unbind(1)[:parts]:
        for each in (x, y):
            torch.autograd.grad(part, each, torch.ones_like(part), create_graph=True)


def differentiate_twice(sweeps: Sweeps) -> None:
    x = torch.randn(5, 1, requires_grad=True)
    result = (x @ WEIGHT[:1]).tanh().sum(1, keepdim=True)
    (slope,) = torch.autograd.grad(result.sum(), x, create_graph=True)
    (bend,) = torch.autograd.grad(slope.sum(), x, create_graph=True)
    bend.square().mean().backward()


def take_a_jacobian(sweeps: Sweeps, rows: int) -> None:
    torch.autograd.functional.jacobian(lambda given: given @ WEIGHT[:2, :1], torch.randn(rows, 2))


@pytest.mark.parametrize(
    ("step", "kind", "backwards"),
    [
        (add_to_the_same, "losses", 2),
        (partial(add_to_the_same, ends=True), None, 0),
        (take_in_turn, "inputs", 2),
        (partial(take_in_turn, parts=3), "inputs", 2),
        (differentiate_twice, None, 0),
        (partial(take_a_jacobian, rows=4), None, 0),
        (partial(take_a_jacobian, rows=12), "parts", 12),
    ],
)
def test_backwards_that_run_through_the_same_nodes_and_might_be_one(
    step: Callable[[Sweeps], object], kind: str | None, backwards: int
) -> None:
    found = sweep(step)
    if kind is None:
        assert found is None
    else:
        assert found is not None
        assert (found["kind"], found["backwards"], found["place"]) == (kind, backwards, "train.py:7")
        assert any(entry[3] == 2 for entry in found["nodes"])
        assert all(entry[2] for entry in found["nodes"] if entry[3] == 2), "a node runs first before it runs again"


def test_a_backward_for_an_input_runs_only_what_leads_to_it() -> None:
    x, y = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
    both = (x.exp() * y.tanh()).sum()
    walked = walk([both.grad_fn], 100)

    def name(*inputs: Tensor) -> set[str]:
        runs = mark_run(walked, inputs)
        return {type(node).__name__ for (node, _, _), each in zip(walked, runs, strict=True) if each}

    assert name(x) == {"SumBackward0", "MulBackward0", "ExpBackward0"}
    assert name(y) == {"SumBackward0", "MulBackward0", "TanhBackward0"}
    assert name() >= name(x) | name(y)


HEAD = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 5))
MIX = nn.GRU(6, 6, batch_first=True)
WORDS = torch.randn(4, 10, 6)


@pytest.mark.parametrize(
    ("compute", "used_frac"),
    [
        (lambda: HEAD(MIX(WORDS)[0])[:, -1], 0.1),
        (lambda: HEAD(MIX(WORDS)[0])[:, :2], 0.2),
        (lambda: HEAD(MIX(WORDS)[0])[torch.rand(4, 10) > 2.0], 0.0),
        (lambda: HEAD(MIX(WORDS)[0][:, -1]), None),
        (lambda: HEAD(MIX(WORDS)[0])[:, 1:], None),
        (lambda: HEAD(MIX(WORDS)[0])[..., :1], None),
        (lambda: HEAD(MIX(WORDS)[0]).mean(1), None),
        (lambda: HEAD(MIX(WORDS)[0])[:, 0].sum() + HEAD(WORDS)[:, 0].sum(), 0.1),
        (lambda: MIX(WORDS)[0][:, -1], None),
    ],
)
def test_rows_that_are_computed_and_dropped(compute: Callable[[], Tensor], used_frac: float | None) -> None:
    walked = walk([compute().grad_fn], 1000)
    found = find_spare(walked)
    if used_frac is None:
        assert found is None
    else:
        assert found is not None
        assert found.used_frac == pytest.approx(used_frac)
        names = {type(node).__name__ for (node, _, _), mark in zip(walked, found.marks, strict=True) if mark}
        assert {"AddmmBackward0", "GeluBackward0", "NativeLayerNormBackward0"} <= names
        assert not {name for name in names if "Rnn" in name or "Sigmoid" in name}


def test_rows_that_something_else_reads_are_not_dropped() -> None:
    made = HEAD(WORDS)
    assert find_spare(walk([(made[:, 0].sum() + made.square().sum()).grad_fn], 1000)) is None


def test_a_product_that_mixes_rows_ends_what_could_be_selected_first() -> None:
    graph = torch.rand(20, 20)
    walked = walk([((graph @ (BATCH @ WEIGHT).relu())[:2]).grad_fn], 1000)
    found = find_spare(walked)
    assert found is not None
    names = [type(node).__name__ for (node, _, _), mark in zip(walked, found.marks, strict=True) if mark]
    assert names == ["MmBackward0"], "rows of the graph can be chosen, those of what it mixes cannot"


def look_at(result: Tensor, has_window: bool = True) -> dict[str, dict[str, Any]]:
    walked, look = walk([result.grad_fn], 1000), WorkLook(has_window)
    nodes = [(-1 if variable is not None else read_number(node, variable), 0, True) for node, _, variable in walked]
    look.see_nodes(walked, nodes)
    return look.describe(11)


def test_a_step_notes_what_its_backward_shows() -> None:
    made = (BATCH @ WEIGHT).tanh() + (BATCH @ WEIGHT).tanh()
    assert look_at(made.mean()).keys() == {"repeated_nodes"}
    assert look_at(made[:2].mean()).keys() == {"repeated_nodes", "spare_nodes"}
    assert look_at(made[:2].mean())["spare_nodes"]["used_frac"] == pytest.approx(0.1)
    assert look_at(made.mean(), has_window=False) == {}
    assert look_at((BATCH @ WEIGHT).mean()) == {}


@pytest.mark.parametrize("has_window", [False, True])
def test_subnormal_numbers_of_what_is_kept_are_counted_once(has_window: bool) -> None:
    tiny = torch.full((4, 16), 1e-40)
    tiny[:, 0] = 0.0
    twice = (tiny * OTHER[0, 0]).sum() + (tiny * OTHER[0, 1]).sum()
    counted = look_at(twice, has_window)["subnormals"]
    assert counted["subnormal"] == 60
    assert 60 < counted["read"] <= 70
    assert "subnormals" not in look_at((torch.ones(4, 16) * OTHER[0, 0]).sum(), has_window)


def test_a_product_after_a_transposition_may_mix_rows() -> None:
    mixed = (WORDS @ WEIGHT).transpose(1, 2) @ torch.nn.Parameter(torch.randn(10, 10))
    assert find_spare(walk([mixed.transpose(1, 2)[:, :2].sum().grad_fn], 1000)) is None
