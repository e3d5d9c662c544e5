"""The graph of a backward: its nodes, and what of it is computed more than once.

Operators that compute the same are found as compilers number values to share computations. Two nodes have the same value
if they are of one kind and keep the same settings, the nodes of their inputs have the same values, and their other inputs
are the same. So have nodes of one kind whose results have the same numbers, where later nodes keep them for backward.
All this takes 20 to 35 microseconds for a node.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from collector.context.numbers import count_subnormals, take_some, view_numbers

_SELECTIONS = re.compile(r"(Select|Slice|Index|IndexSelect)Backward\d+")
_BY_ROW = re.compile(
    r"(Addmm|Mm|View|UnsafeView|ReshapeAlias|Clone|Relu|Gelu|Silu|Tanh|Sigmoid|LeakyRelu|Elu|Softplus"
    r"|NativeLayerNorm|FusedRmsNorm|Mul|Div|Add|Sub|Exp|NativeDropout|ToCopy|Unsqueeze|Squeeze)Backward\d+"
)
"""Nodes that compute each row of their result from one row of their input, for rows of the last dimension. A transposition
is none of them, because a product that follows it may mix rows."""
_ROWS_FROM = {"MmBackward0": 0, "AddmmBackward0": 1}
"""The place of the input, among those of a product, whose rows become the rows of the result."""
MOST_USED_FRAC = 0.5
"""The largest share of its input that a selection may keep, for the rest to count as dropped."""
Walked = tuple[Any, tuple[int, ...], Any]
"""A node, the indexes of its successors, and the leaf that it writes to, None if it writes none."""
MOST_RANGES = 2_000
_MOST_NUMBERED, _MOST_READ = 5_000, 64
"""Most nodes of a backward whose values are numbered, and most numbers that are read of a tensor."""
LEAST_PARTS = 8
"""The least number of parts of a result whose gradients are taken one by one, for them to count as a Jacobian."""
_MOST_COMPARED = 64
"""Most numbers of a tensor that are all compared."""
_MOST_OF_RESULT, _MOST_OF_MANY, _MANY_VALUES = 1_024, 256, 64
"""How many numbers are compared of a result such as a mask, and how many of a tensor whose numbers have many values."""
_PLAIN = re.compile(
    r"(?!Bernoulli|Binomial|Cauchy|Exponential|Geometric|LogNormal|Normal|Poisson|Random|Rrelu|Sample"
    r"|StandardGamma|Uniform)\w+Backward\d+"
)
"""The nodes of PyTorch's own operators, which are types of `builtins`, without operators that draw random numbers."""
_VIEWS = re.compile(
    r"(Alias|AsStrided|Detach|Diagonal|Expand|Permute|ReshapeAlias|Select|Slice|Split|Squeeze|T|Transpose|Unbind|Unfold"
    r"|Unsqueeze|UnsafeSplit|UnsafeView|View)Backward"
)


def find_edge(root: Any) -> Any:
    return getattr(root, "grad_fn", None) or getattr(root, "node", None)


def walk(roots: list[Any], most: int) -> list[Walked]:
    """Return the nodes of the autograd graph behind `roots`, successors first: (node, indexes of the successors, leaf
    that the node writes to).

    Empty if the graph has more than `most` nodes.
    """
    places: dict[Any, int] = {}
    found: list[Walked] = []
    successors: dict[Any, list[Any]] = {}
    stack = list(roots)
    while stack:
        node = stack[-1]
        if node not in successors:
            successors[node] = [after for after, _ in node.next_functions if after is not None]
            stack.extend(after for after in successors[node] if after not in successors)
            if len(successors) > most:
                return []
            continue
        stack.pop()
        if node not in places:
            places[node] = len(found)
            variable = getattr(node, "variable", None) if node.name() == "torch::autograd::AccumulateGrad" else None
            found.append((node, tuple(places[after] for after in successors[node] if after in places), variable))
    return found


def mark_run(walked: Sequence[Walked], inputs: Iterable[Any]) -> list[bool]:
    """Return for each node of `walk` whether a backward that asks for the gradients of `inputs` runs it: all nodes if
    there are none.
    """
    wanted = {id(each) for each in inputs}
    if not wanted:
        return [True] * len(walked)
    makers = {node for each in inputs if (node := find_edge(each)) is not None}
    reaches: list[bool] = []
    runs: list[bool] = []
    for node, successors, variable in walked:
        runs.append(any(reaches[place] for place in successors))
        reaches.append(runs[-1] or node in makers or (variable is not None and id(variable) in wanted))
    return runs


def read_number(node: Any, variable: Any) -> int:
    return -2 if variable is not None else int(node._sequence_nr())


def join_ranges(classes: Mapping[int, int], time: int) -> Iterator[list[int]]:
    first = last = kind = 0
    for number in sorted(classes):
        if kind and classes[number] != kind:
            yield [first, last, time, kind]
        if classes[number] != kind:
            first, kind = number, classes[number]
        last = number
    if kind:
        yield [first, last, time, kind]


def find_repeats(nodes: Sequence[Any]) -> list[bool]:
    """Return for each node whether an earlier node has the same value. A node follows the nodes of its inputs.

    A node has a value of its own if no later node keeps its result, and its kind or its inputs are unknown. Views are
    not counted, because they compute nothing.
    """
    values: dict[Any, int] = {}
    known: dict[Any, int] = {}
    kept: dict[type, tuple[tuple[str, bool], ...]] = {}
    results = _read_results(nodes)
    for node in nodes:
        value = len(values)
        kind = type(node)
        if kind not in kept:
            kept[kind] = _list_kept(kind)
        keys = [_describe_value(node, kept[kind], values), (kind, results[node]) if node in results else None]
        values[node] = min((known[key] for key in keys if key in known), default=value)
        known |= {key: values[node] for key in keys if key is not None}
    again = [value != place for place, value in enumerate(values.values())]
    return [repeats and not _VIEWS.match(type(node).__name__) for node, repeats in zip(values, again, strict=True)]


@dataclass(frozen=True)
class Spare:
    """Nodes whose results are mostly dropped, as marks in the order of `walk`, and the share that is used."""

    marks: tuple[bool, ...]
    used_frac: float


def find_spare(walked: Sequence[Walked]) -> Spare | None:
    """Return the nodes of which only some rows are used, because a selection follows: all that they compute for a row
    depends on that row alone, so the selection could come first. None if there is no such node.

    Of several selections, the one with most nodes before it counts.
    """
    consumers: list[list[int]] = [[] for _ in walked]
    for place, (_, successors, _) in enumerate(walked):
        for after in successors:
            consumers[after].append(place)
    found = []
    for place, (node, _, _) in enumerate(walked):
        if (used_frac := _measure_selection(node)) <= MOST_USED_FRAC:
            before = _find_before(walked, consumers, place)
            computes = any(not _VIEWS.match(type(walked[each][0]).__name__) for each in before)
            found += [(before, used_frac)] if computes else []
    if not found:
        return None
    before, used_frac = max(found, key=lambda each: len(each[0]))
    return Spare(tuple(place in before for place in range(len(walked))), used_frac)


def _measure_selection(node: Any) -> float:
    """Return the share of its input that a selection of rows keeps; 1 for any other node."""
    if not _SELECTIONS.fullmatch(type(node).__name__):
        return 1.0
    try:
        before = [int(size) for size in node._saved_self_sym_sizes]
        after = [int(size) for size in node._input_metadata[0].shape]
    except (AttributeError, RuntimeError, TypeError):
        return 1.0
    if not before or not after or before[-1] != after[-1]:  # a choice among the features
        return 1.0
    return math.prod(after) / max(math.prod(before), 1)


def _find_before(walked: Sequence[Walked], consumers: Sequence[Sequence[int]], selection: int) -> set[int]:
    """Return the indexes of the nodes that only the selection uses, and that compute row by row."""
    found = {selection}
    left = list(walked[selection][1])
    while left:
        place = left.pop()
        node, successors, variable = walked[place]
        if variable is None and _BY_ROW.fullmatch(type(node).__name__) and found.issuperset(consumers[place]):
            found.add(place)
            rows = _ROWS_FROM.get(type(node).__name__)
            edges = [after for after, _ in node.next_functions]
            wanted = edges if rows is None else edges[rows : rows + 1]
            left += [after for after in successors if walked[after][0] in wanted]
    return found - {selection}


def _read_results(nodes: Iterable[Any]) -> dict[Any, tuple[Any, ...]]:
    """Return some numbers of the result of each node, where a node that uses it keeps it, and if they are of many values."""
    found: dict[Any, tuple[Any, ...]] = {}
    for tensor in list_saved(nodes):
        with suppress(RuntimeError, TypeError):  # a tensor without memory of its own, or a view that was changed
            node = tensor.grad_fn
            if node is None or node in found or tensor.output_nr:
                continue
            if (some := _read_many(tensor)) is not None:
                found[node] = (tuple(tensor.shape), tensor.dtype, some)
    return found


def _read_many(tensor: Any) -> bytes | None:
    """Return some numbers of a tensor on the host, None if they are of few values."""
    if (array := view_numbers(tensor)) is None:
        return None
    some = take_some(array, _MOST_OF_MANY)
    return some.tobytes() if len(set(some.tolist())) >= _MANY_VALUES else None


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
                    kept.append(_identify(each, is_result=name.startswith("_saved_result")))
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


def list_saved(nodes: Iterable[Any]) -> Iterator[Any]:
    """Yield the tensors that nodes keep for backward, without those that a hook may compute again."""
    names = {kind: _list_kept(kind) for kind in {type(node) for node in nodes}}
    for node in nodes:
        for name in (name for name, is_tensor in names[type(node)] if is_tensor):
            try:
                raws = _take_each(getattr(node, "_raw" + name))
                found = _take_each(getattr(node, name)) if all(raw.unpack_hook is None for raw in raws) else ()
            except (AttributeError, RuntimeError):  # a tensor that was changed or freed
                continue
            yield from (each for each in found if type(each).__name__ in ("Tensor", "Parameter"))


def _take_each(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (list, tuple)) else (value,)


def _identify(tensor: Any, is_result: bool) -> tuple[Any, ...]:
    """Return what is equal for equal tensors: the numbers of a small tensor on the host, else the place in memory. Some
    numbers stand for all if they are of many values, or of a result of the node itself, such as the mask of a dropout.
    """
    shape = tuple(tensor.shape), tensor.dtype, tensor.device
    if tensor.device.type == "cpu" and tensor.numel() <= _MOST_COMPARED:
        return (*shape, str(tensor.tolist()))
    if is_result and (array := view_numbers(tensor)) is not None:
        return (*shape, take_some(array, _MOST_OF_RESULT).tobytes())
    if (some := _read_many(tensor)) is not None:
        return (*shape, some)
    return (*shape, tensor.data_ptr(), tensor.stride(), tensor._version)


@dataclass
class _Group:
    """Backwards that might be one. `calls` counts those that share nodes, by line; `nodes` maps how often a node ran
    before to the nodes' numbers, with 2 for nodes that ran again in this group, 0 for others. `overlaps`: two backwards
    ask for the gradient of the same input.
    """

    inputs: set[int] = field(default_factory=set)
    overlaps: bool = False
    calls: Counter[str] = field(default_factory=Counter)
    ran: set[int] = field(default_factory=set)
    nodes: dict[int, dict[int, int]] = field(default_factory=dict)

    def add(self, inputs: set[int], place: str, runs: Sequence[tuple[int, int]]) -> None:
        again = [number in self.ran for number, _ in runs]
        self.calls[place] += any(again) or not self.ran
        self.overlaps |= not self.inputs.isdisjoint(inputs)
        self.inputs |= inputs
        for (number, time), repeats in zip(runs, again, strict=True):
            self.nodes.setdefault(time, {})[number] = 2 * repeats
        self.ran.update(number for number, _ in runs)

    @property
    def repeated(self) -> int:
        return sum(kind == 2 for classes in self.nodes.values() for kind in classes.values())


class Sweeps:
    """Backwards of a step that run through the same nodes and might be one: `losses` that add to the same gradients,
    gradients of one result for different `inputs`, and gradients of the `parts` of a result, as in a Jacobian.
    """

    def __init__(self) -> None:
        self._groups: dict[tuple[str, Any], _Group] = {}
        self._era = 0

    def end(self) -> None:
        """Note that gradients were used or cleared: later backwards do not add to them."""
        self._era += 1

    def add(
        self, roots: Iterable[Any] | None, inputs: Iterable[Any], place: str, nodes: Iterable[tuple[int, int, bool]]
    ) -> None:
        """Note a backward at the line `place`. `nodes` are the numbers of its nodes (negative for leaves), how often each
        ran before, and whether it runs.

        `roots` are the tensors of which gradients are taken with respect to `inputs`, None where gradients are added up.
        """
        asked = {id(each) for each in inputs}
        runs = [(number, time) for number, time, is_run in nodes if is_run and number >= 0]
        keys: list[tuple[str, Any]] = [("losses", self._era)]
        if roots is not None:
            made = [(edge, getattr(root, "output_nr", 0)) for root in roots if (edge := find_edge(root)) is not None]
            exact = tuple((edge._sequence_nr(), output) for edge, output in made)
            keys = [("inputs", exact), ("parts", tuple(_strip_views(edge)._sequence_nr() for edge, _ in made))]
        for key in keys:
            self._groups.setdefault(key, _Group()).add(asked, place, runs)

    def describe(self) -> dict[str, Any] | None:
        """Return the fact of the kind of backwards with most nodes that ran again; None if no node did."""
        kinds: dict[str, list[_Group]] = {}
        for (kind, _), group in self._groups.items():
            is_one = not group.overlaps if kind == "inputs" else kind == "losses" or group.calls.total() >= LEAST_PARTS
            if is_one and group.repeated:
                kinds.setdefault(kind, []).append(group)
        counts = {kind: sum(group.repeated for group in groups) for kind, groups in kinds.items()}
        if not counts:
            return None
        most = max(counts, key=counts.__getitem__)
        if most == "parts" and 2 * counts.get("inputs", 0) >= counts["parts"]:
            most = "inputs"
        largest = max(kinds[most], key=lambda group: group.calls.total())
        nodes: dict[int, dict[int, int]] = {}
        for group in kinds[most]:
            for time, classes in group.nodes.items():
                nodes.setdefault(time, {}).update(classes)
        return {
            "nodes": [each for time in sorted(nodes) for each in join_ranges(nodes[time], time)],
            "kind": most,
            "backwards": largest.calls.total(),
            "place": largest.calls.most_common(1)[0][0],
        }


def _strip_views(node: Any) -> Any:
    """Return the node whose result the views before `node` show."""
    while _VIEWS.match(type(node).__name__) and len(node.next_functions) == 1 and node.next_functions[0][0] is not None:
        node = node.next_functions[0][0]
    return node


class WorkLook:
    """What the backwards of one step show of work that could be left out. Without `has_window`, no time is known, and
    only subnormal numbers are counted.
    """

    def __init__(self, has_window: bool) -> None:
        self.sweeps = Sweeps()
        self._has_window = has_window
        self._repeats: list[dict[int, int]] = []
        self._spare: tuple[int, dict[str, Any]] = 0, {}
        self._read = self._subnormal = 0
        self._places: set[tuple[int, int]] = set()

    def see_nodes(self, walked: Sequence[Walked], nodes: Sequence[tuple[int, int, bool]]) -> None:
        """Look at the graph of a backward. `nodes` are as in `Sweeps.add`, in the order of `walked`."""
        if len(walked) > _MOST_NUMBERED:
            return
        plain = [node for node, _, _ in walked]
        self._count_subnormals(plain)
        if self._has_window:
            self._repeats.append(_mark_new(nodes, find_repeats(plain)))
            spare = find_spare(walked)
            if spare is not None and sum(spare.marks) > self._spare[0]:
                ranges = list(join_ranges(_mark_new(nodes, spare.marks), 0))
                self._spare = sum(spare.marks), {"nodes": ranges, "used_frac": round(spare.used_frac, 4)}

    def _count_subnormals(self, nodes: Sequence[Any]) -> None:
        for tensor in list_saved(nodes):
            with suppress(RuntimeError, TypeError):  # a tensor without memory of its own
                place = tensor.data_ptr(), tensor.numel()
                if place not in self._places and (array := view_numbers(tensor)) is not None:
                    self._places.add(place)
                    some = take_some(array, _MOST_READ)
                    self._read += len(some)
                    self._subnormal += count_subnormals(some)

    def describe(self, step: int) -> dict[str, dict[str, Any]]:
        """Return the facts for rank.json; none for what was not found."""
        ranges = [each for classes in self._repeats for each in join_ranges(classes, 0)]
        found = {
            "repeated_nodes": {"nodes": ranges} if ranges else None,
            "spare_nodes": self._spare[1],
            "repeated_backwards": self.sweeps.describe() if self._has_window else None,
        }
        facts = {
            name: {"step": step, **fact} for name, fact in found.items() if fact and len(fact["nodes"]) <= MOST_RANGES
        }
        counted = {"read": self._read, "subnormal": self._subnormal}
        return facts | ({"subnormals": counted} if self._subnormal else {})


def _mark_new(nodes: Sequence[tuple[int, int, bool]], marks: Sequence[bool]) -> dict[int, int]:
    """Return 2 for the marked nodes and 0 for the others, by number, without leaves and nodes that ran before."""
    return {number: 2 * mark for (number, time, _), mark in zip(nodes, marks, strict=True) if number >= 0 and not time}
