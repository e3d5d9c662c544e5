"""Find operators that compute the same, in the graph of a backward, as compilers number values to share computations.

Two nodes have the same value if they are of one kind and keep the same settings, the nodes of their inputs have the same
values, and their other inputs are the same tensors. This takes some ten microseconds for a node.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

_MOST_COMPARED = 64
"""Most numbers of a tensor that are compared one by one."""
_PLAIN = re.compile(
    r"(?!Bernoulli|Binomial|Cauchy|Exponential|Geometric|LogNormal|Normal|Poisson|Random|Rrelu|Sample"
    r"|StandardGamma|Uniform)\w+Backward\d+"
)
"""The nodes of PyTorch's own operators, which are types of `builtins`, without operators that draw random numbers."""
_VIEWS = re.compile(
    r"(Alias|AsStrided|Detach|Diagonal|Expand|Permute|ReshapeAlias|Select|Slice|Split|Squeeze|T|Transpose|Unbind|Unfold"
    r"|Unsqueeze|UnsafeSplit|UnsafeView|View)Backward"
)


def find_repeats(nodes: Iterable[Any]) -> list[bool]:
    """Return for each node whether an earlier node has the same value. A node follows the nodes of its inputs.

    A node of an unknown kind, or with inputs that it does not keep, has a value of its own. Views are not counted,
    because they compute nothing.
    """
    values: dict[Any, int] = {}
    known: dict[Any, int] = {}
    kept: dict[type, tuple[tuple[str, bool], ...]] = {}
    for node in nodes:
        value = len(values)
        kind = type(node)
        if kind not in kept:
            kept[kind] = _list_kept(kind)
        key = _describe_value(node, kept[kind], values)
        values[node] = value if key is None else known.setdefault(key, value)
    again = [value != place for place, value in enumerate(values.values())]
    return [repeats and not _VIEWS.match(type(node).__name__) for node, repeats in zip(values, again, strict=True)]


def _describe_value(node: Any, names: Iterable[tuple[str, bool]], values: Mapping[Any, int]) -> tuple[Any, ...] | None:
    """Return what the value of a node depends on; None if it is not known."""
    kind = type(node)
    if kind.__module__ != "builtins" or not _PLAIN.fullmatch(kind.__name__):
        return None
    edges = [None if after is None else (values.get(after, -1), output) for after, output in node.next_functions]
    others = edges.count(None)
    kept: list[Any] = []
    try:
        for name, is_tensor in names:
            if is_tensor and any(each.unpack_hook is not None for each in _take_each(getattr(node, "_raw" + name))):
                return None  # the hook might compute the tensor again
            for each in _take_each(getattr(node, name)):
                if not hasattr(each, "requires_grad"):  # no tensor
                    kept.append(each)
                elif not each.requires_grad:  # other tensors are results, or inputs with a node
                    others -= 1
                    kept.append(_identify(each))
        shapes = tuple((tuple(each.shape), each.dtype) for each in node._input_metadata)
        key = (kind, tuple(edges), tuple(kept), shapes)
        hash(key)
    except (AttributeError, RuntimeError, TypeError):  # a kind that shows less, or a tensor that was changed or freed
        return None
    return key if others <= 0 else None


def _list_kept(kind: type) -> tuple[tuple[str, bool], ...]:
    """Return the attributes with what nodes of a kind keep for backward, and whether these are tensors."""
    names = set(dir(kind))
    return tuple((name, "_raw" + name in names) for name in sorted(names) if name.startswith("_saved_"))


def _take_each(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (list, tuple)) else (value,)


def _identify(tensor: Any) -> tuple[Any, ...]:
    """Return what is equal for equal tensors: the numbers of a small tensor on the host, else the place in memory."""
    shape = tuple(tensor.shape), tensor.dtype, tensor.device
    if tensor.device.type == "cpu" and tensor.numel() <= _MOST_COMPARED:
        return (*shape, str(tensor.tolist()))
    return (*shape, tensor.data_ptr(), tensor.stride(), tensor._version)
