"""Find wasted gradients: a backward computes them, but no update uses them. They are cleared unused, or stay for ever.
Find repeated computations, too: operators of a forward with the same inputs as an earlier operator of this forward, and
several backwards through the same nodes. Of the tensors that a backward keeps, some numbers are read, to find subnormals.

During up to three steps of each detailed window, the graph of each backward is walked once before the backward runs. This
takes about a microsecond for a node, and some 30 in the first of these steps (`collector.context.graphs`). Nothing is hooked and no tensor is kept. Updates, calls of `zero_grad`, and
gradients that are missing at the next backward show which gradients were used. A node of the backward is needless if
all its gradients are wasted. The number of the node leads to the operator that made it.
"""

from __future__ import annotations

import dis
import os
import sys
import weakref
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import CodeType, FunctionType
from typing import Any

import torch

from collector.context.graphs import MOST_RANGES, WorkLook, find_edge, join_ranges, mark_run, read_number, walk
from collector.context.hooks import find_place, find_tracer, is_backward_compiled, skip_code, stop_calling
from collector.context.signals import SETTLED_STEP, Signal, SignalContext
from collector.edge import hide_frames

MOST_STEPS = 3
MOST_NODES, MOST_NODES_IN_ALL = 10_000, 50_000
"""Most nodes of a backward, and of all backwards in the examined steps. A backward that exceeds either is not
judged."""
LEAST_THROWN = 2
"""Times that the gradient of a parameter must be thrown away to count as wasted: one may be an exception."""
_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_MOST_FRAMES, _MOST_NAMES = 64, 2_000


@dataclass
class _Written:
    """A parameter with a gradient that no update has used yet. `version` is the parameter's version counter when the
    gradient was first written; `backwards` are the indexes of the backwards that wrote it.
    """

    parameter: weakref.ref[Any]
    version: int
    backwards: list[int]


@dataclass(frozen=True)
class _Node:
    """A node of a backward. `number` is PyTorch's number of the node. `time` is how often the node ran before.

    `successors` are the indexes of the nodes that run after it. `leaf` is the id of the tensor whose gradient the node
    writes, None if it writes none. `runs`: the backward needs the node for its inputs.
    """

    number: int
    time: int
    successors: tuple[int, ...]
    leaf: int | None
    runs: bool


class GradientLook:
    """A record of what becomes of the gradients in some steps. Its methods receive events, on the training thread only;
    `finish` returns what was found. `work` receives the backwards of the first step; None later.
    """

    def __init__(self, work: WorkLook | None) -> None:
        self._written: dict[int, _Written] = {}
        self._backwards: list[list[_Node]] = []
        self._times: dict[int, int] = {}
        self._unsure: set[int] = set()
        self._thrown: dict[int, list[int]] = {}
        self._changed: dict[int, list[int]] = {}
        self._updated: dict[int, weakref.ref[Any]] = {}
        self._seen: dict[int, weakref.ref[Any]] = {}
        self._updating = 0
        self._read: dict[int, bool] = {}
        self._has_other_leaf = False
        self.work = work

    def backward_starts(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        if is_backward_compiled():
            self._unsure.add(-1)
            return
        self._find_gone()
        most = min(MOST_NODES, MOST_NODES_IN_ALL - sum(map(len, self._backwards)))
        walked = walk([edge for root in args[0] if (edge := find_edge(root)) is not None], most)
        nodes = [(read_number(node, variable), successors, variable) for node, successors, variable in walked]
        inputs = args[4] if len(args) > 4 and args[4] else ()
        accumulates = kwargs.get("accumulate_grad", True)
        is_whole = accumulates and not inputs and not self._updating
        at = len(self._backwards)
        kept = []
        for (number, successors, variable), runs in zip(nodes, mark_run(walked, inputs), strict=True):
            if variable is not None and is_whole and isinstance(variable, torch.nn.Parameter):
                self._write(variable, at)
            elif variable is not None and is_whole:
                self._has_other_leaf = True
            time = self._times[number] = self._times.get(number, -1) + runs
            kept.append(_Node(number, time, successors, None if variable is None else id(variable), runs))
            if not is_whole:
                self._unsure.add(number)
        if not nodes:
            self._unsure.add(-1)
        self._backwards.append(kept)
        if self.work is not None:
            ran = [(-1 if node.leaf is not None else node.number, node.time, node.runs) for node in kept]
            self.work.see_nodes(walked, ran)
            if is_whole or not accumulates:
                place = find_place(sys._getframe(1), (_TORCH, _OURS))
                self.work.sweeps.add(None if is_whole else args[0], inputs, place, ran)
        self._look_at_code(sys._getframe(1))

    def update_starts(self, optimizer: Any) -> None:
        self._updating += 1
        self.takes(optimizer)

    def takes(self, optimizer: Any) -> None:
        """Note that an update used the gradients of the optimizer, or skipped them because they are infinite."""
        self._end_sum()
        for parameter in _list_parameters(optimizer):
            self._updated.setdefault(id(parameter), weakref.ref(parameter))
            self._written.pop(id(parameter), None)

    def update_ends(self) -> None:
        self._updating = max(self._updating - 1, 0)

    def clears(self, optimizer: Any) -> None:
        self._end_sum()
        for parameter in _list_parameters(optimizer):
            self._updated.setdefault(id(parameter), weakref.ref(parameter))
            if (written := self._written.pop(id(parameter), None)) is not None:
                self._throw(id(parameter), written)

    def finish(self, optimizers: Iterable[Any] = ()) -> dict[str, Any] | None:
        """Return the fact for rank.json; None if every gradient was used, or may have been used.

        `optimizers` are the optimizers that made updates before these steps.
        """
        for parameter in (each for optimizer in optimizers for each in _list_parameters(optimizer)):
            self._updated.setdefault(id(parameter), weakref.ref(parameter))
        self._find_gone()
        # A gradient that the script reads may be that of a sample, if a backward writes one.
        reads = any(self._read.values()) and not self._has_other_leaf
        # A parameter of no optimizer that changes beside those of optimizers follows them, as a moving average does,
        # unless code reads gradients: such code may update it by hand.
        may_follow = not reads and not self._updated.keys().isdisjoint(self._seen)
        for key in self._changed.keys() - self._updated.keys() if may_follow else ():
            self._thrown.setdefault(key, []).extend(self._changed[key])
        held = {key for key, backwards in self._thrown.items() if len(backwards) >= LEAST_THROWN}
        if reads:  # a gradient that the script reads is not thrown away
            held, self._thrown = set(), {key: at for key, at in self._thrown.items() if key not in self._updated}
        unheld = self._find_unheld(may_follow)
        for key in unheld:
            self._thrown.setdefault(key, []).extend(self._written[key].backwards)
        unused = [seen for key in held | unheld if (seen := self._seen[key]()) is not None]
        updated = [seen for ref in self._updated.values() if (seen := ref()) is not None]
        # Optimizers that hold copies of the parameters hold no parameter of this type.
        if not unused or {each.dtype for each in unused} - {each.dtype for each in updated}:
            return None
        return {
            "parameters": sum(each.numel() for each in unused),
            "tensors": len(unused),
            "updated": sum(each.numel() for each in updated),
            "held": sum(each.numel() for each in unused if id(each) in self._updated),
            "nodes": [] if -1 in self._unsure else self._list_needless(held | unheld),
        }

    def _end_sum(self) -> None:
        if self.work is not None:
            self.work.sweeps.end()

    def _write(self, parameter: Any, at: int) -> None:
        key = id(parameter)
        known = self._seen.get(key)
        if known is None or known() is not parameter:
            self._seen[key] = weakref.ref(parameter)
        written = self._written.get(key)
        if written is None or written.parameter() is not parameter:
            written = self._written[key] = _Written(self._seen[key], parameter._version, [])
        written.backwards.append(at)

    def _find_gone(self) -> None:
        """Count gradients as thrown away that were written and are None now: the script or `Module.zero_grad` cleared
        them.
        """
        for key, written in list(self._written.items()):
            parameter = written.parameter()
            if parameter is None:
                del self._written[key]
            elif parameter.grad is None:
                self._end_sum()
                self._throw(key, self._written.pop(key))

    def _throw(self, key: int, written: _Written) -> None:
        parameter = written.parameter()
        if parameter is not None:
            is_changed = parameter._version != written.version
            (self._changed if is_changed else self._thrown).setdefault(key, []).extend(written.backwards)

    def _find_unheld(self, may_follow: bool) -> set[int]:
        """Return the ids of the parameters that no optimizer has updated, and whose gradients stay. With `may_follow`,
        these may have changed meanwhile.
        """
        return {
            key
            for key, written in self._written.items()
            if key not in self._updated
            and (parameter := written.parameter()) is not None
            and (may_follow or (parameter._version == written.version and key not in self._changed))
        }

    def _list_needless(self, parameters: set[int]) -> list[list[int]]:
        """Return ranges of autograd nodes with wasted work; `parameters` are the ids of those with wasted gradients.

        A range is: its first and last sequence number, in how many backwards its nodes ran before, and 2 if all
        gradients that they compute are wasted, 1 if only some are.
        """
        thrown = {(at, key) for key in parameters for at in self._thrown.get(key, ())}
        found: dict[int, dict[int, int]] = {}
        for at, nodes in enumerate(self._backwards):
            needless: list[bool] = []
            for node in nodes:
                below = [needless[place] for place in node.successors]
                needless.append((at, node.leaf) in thrown if node.leaf is not None else bool(below) and all(below))
                if node.leaf is None and node.number not in self._unsure:
                    found.setdefault(node.time, {})[node.number] = 2 if needless[-1] else int(any(below))
        ranges = [found_range for time in sorted(found) for found_range in join_ranges(found[time], time)]
        return ranges if len(ranges) <= MOST_RANGES else []

    def _look_at_code(self, frame: Any) -> None:
        """Note whether the code around a backward reads gradients itself, as gradient surgery does."""
        for _ in range(_MOST_FRAMES):
            if frame is None:
                return
            code, names = frame.f_code, frame.f_globals
            if not code.co_filename.startswith((_TORCH, _OURS, "<frozen")):
                if id(code) not in self._read:
                    self._read[id(code)] = reads_gradients(code)
                if id(names) not in self._read:
                    self._read[id(names)] = any(reads_gradients(each) for each in _list_code(names))
            if code.co_name == "<module>":  # what lies above has started the script
                return
            frame = frame.f_back


def _list_parameters(optimizer: Any) -> Iterator[Any]:
    return (parameter for group in optimizer.param_groups for parameter in group["params"])


def _list_code(names: Mapping[str, Any]) -> Iterator[CodeType]:
    """Yield the code of the functions and methods of a module with the namespace `names`, also of those that it imports
    from other scripts.
    """
    for value in list(names.values())[:_MOST_NAMES]:
        members: Iterable[Any] = (value,)
        if isinstance(value, type):
            members = list(vars(value).values())
        for member in members:
            function = getattr(member, "__func__", member)
            if isinstance(function, FunctionType) and not function.__code__.co_filename.startswith((_TORCH, _OURS)):
                yield function.__code__


def reads_gradients(code: CodeType) -> bool:
    """Return whether code, or code inside it, reads an attribute `grad`. Calls of a function `grad` do not count."""
    if "grad" in code.co_names:
        for each in dis.get_instructions(code):
            is_method = sys.version_info >= (3, 12) and bool((each.arg or 0) & 1)
            if each.opname == "LOAD_ATTR" and each.argval == "grad" and not is_method:
                return True
    return any(reads_gradients(inner) for inner in code.co_consts if isinstance(inner, CodeType))


class UnusedGradientsSignal(Signal):
    """The signal of gradients that the backward computes but no update uses."""

    name = "unused_gradients"

    def __init__(self) -> None:
        self._look: GradientLook | None = None
        self._optimizers: weakref.WeakSet[Any] = weakref.WeakSet()
        self._may_trace = find_tracer()
        skip_code(UnusedGradientsSignal._try.__code__)
        # Without frames of their own, which Dynamo could trace.
        self.backward_starts = partial(self._try, "backward_starts")
        self.update_starts = partial(self._try, "update_starts")
        self.update_ends = partial(self._try, "update_ends")
        self.takes = partial(self._try, "takes")
        self.clears = partial(self._try, "clears")

    def install(self, context: SignalContext) -> None:
        self._context = context
        window = context.options.window
        self._first = SETTLED_STEP if window.is_off else max(window.first, 2)
        # What is written in the last of these steps may be thrown away in the step that follows.
        self._last = self._first + (MOST_STEPS if window.is_off else min(window.count, MOST_STEPS))
        context.optimizer_watchers.append(self._optimizers.add)
        context.boundaries.append(self._on_step)
        context.window_watchers.append(self._on_window)

    def remove(self) -> None:
        self._context.gradient_watchers.clear()
        self._look = None
        stop_calling(self._on_step, self._context.boundaries)

    def _on_window(self, step: int) -> None:
        """Look again at a later window: its steps may do something else, such as training after a pretraining."""
        with self._context.shielded(self.name):
            if self._look is None and step > self._last:
                self._first, self._last = step, step + MOST_STEPS
                self._context.boundaries.append(self._on_step)
                self._begin()

    def _begin(self) -> None:
        self._look = GradientLook(WorkLook(has_window=not self._context.options.window.is_off))
        self._context.gradient_watchers.append(self)

    def _on_step(self, ended: int) -> None:
        if self._look is None:
            if ended >= self._first - 1:
                self._last += ended + 1 - self._first
                self._first = ended + 1
                self._begin()
            return
        if ended < self._first:
            return
        with self._context.shielded(self.name):
            if self._look.work is not None:  # the first step alone: a window may be cut short after it
                for name, fact in self._look.work.describe(self._first).items():
                    self._context.add_fact(name, fact)
                self._look.work = None
            if ended >= self._last:
                found = self._look.finish(self._optimizers)
                if found is not None:
                    self._context.add_fact("unused_gradients", {**found, "step": self._first})
        if ended >= self._last:
            self.remove()

    def _try(self, name: str, *args: Any) -> None:
        look = self._look
        if look is None:
            return
        if self._may_trace():  # Dynamo would compile this examination, and read the tensors that it holds
            self._look, self._first, self._last = None, sys.maxsize, sys.maxsize
            self._context.gradient_watchers.clear()
            return
        done = False
        try:
            with self._context.shielded(self.name):
                getattr(look, name)(*args)
                done = True
        except BaseException as error:  # Ctrl-C
            hide_frames(error)
            raise
        if not done:
            self._last = sys.maxsize
            self.remove()


SIGNAL = UnusedGradientsSignal
