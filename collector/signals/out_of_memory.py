"""Note what asked for memory when it ran out, and what held it: parameters, gradients, optimizer state, and local tensors.

All of this runs once, when an error on memory ends the training. No code of the user's runs, no device is asked, and no
frame or tensor is kept.
"""

from __future__ import annotations

import gc
import importlib
import os
import weakref
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import psutil
import torch

from collector.context.shortage import (
    Shortage,
    find_memory_error,
    list_frames,
    list_locals,
    name_function,
    name_line,
    read_shortage,
)
from collector.context.signals import Signal, SignalContext
from collector.frames.files import LIBRARIES

MOST_TENSORS = 5
"""Most local tensors that are named, the largest ones."""
_MOST_MODULES, _MOST_ITEMS, _MOST_LOCAL = 100_000, 100_000, 10_000
"""Most modules of a model, items of a list of an optimizer, and items of a local list of tensors, that are read."""
_MOST_SHOWN, _LONGEST = 8, 200
_BASE: Any = torch.Tensor.__mro__[1]
"""The class of PyTorch whose attributes a subclass of Tensor cannot replace."""
_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_WRAPPERS = ("torch.nn.parallel.", "torch.distributed.", "torch._dynamo.")
_PHASES = {
    torch.utils.data.dataloader.__file__: "data_wait",
    torch.autograd.__file__: "backward",
    torch.nn.modules.module.__file__: "forward",
    importlib.import_module("torch.optim.optimizer").__file__: "optimizer",  # torch.optim hides the module
}
"""The files of PyTorch whose functions call the work of a phase."""


class OutOfMemorySignal(Signal):
    name = "out_of_memory"

    def __init__(self) -> None:
        self._optimizers: weakref.WeakSet[Any] = weakref.WeakSet()

    def install(self, context: SignalContext) -> None:
        self._context = context
        context.optimizer_watchers.append(self._optimizers.add)

    def explain(self, error: BaseException) -> None:
        """Note why memory ran out, if `error` or a cause of it says that it did."""
        found = find_memory_error(error, torch.cuda.OutOfMemoryError)
        if found is not None:
            with torch._C.DisableTorchFunction():
                self._context.add_fact("out_of_memory", describe(found, list(self._optimizers)))


def describe(error: BaseException, optimizers: list[Any]) -> dict[str, Any]:
    """Return the fact on an error on memory. `optimizers` are those of the training as far as they are known."""
    shortage = read_shortage(error)
    frames = list_frames(error.__traceback__)
    own = next((each for each in frames if not _is_library(each[0].f_code.co_filename)), None)
    shown = list(list_locals(frames))
    found: dict[str, Any] = {"device": shortage.device, **shortage.sizes}
    if shortage.device == "cpu":
        found["total_bytes"] = psutil.virtual_memory().total
        found["process_bytes"] = psutil.Process().memory_info().rss
    if own is not None:
        found |= {"place": name_line(*own)[:_LONGEST], "function": name_function(own[0])[:_LONGEST]}
    modules = [each for _, names in shown if _is_a(each := names.get("self"), torch.nn.Module)]
    if modules:
        found["module"] = _name_module(modules)[:_LONGEST]
    values = [value for _, names in shown for value in list(names.values())]
    optimizers = _select([*optimizers, *values], torch.optim.Optimizer)
    roots = _select(values, torch.nn.Module)
    account = _Account(shortage)
    shown.sort(key=lambda each: _is_library(each[0].f_code.co_filename))
    return {
        **found,
        "phase": _find_phase([frame.f_code.co_filename for frame, _ in frames]),
        **account.count_training(optimizers, roots),
        "tensors": account.list_largest(shown),
    }


class _Account:
    """Bytes of tensors on the device that ran out. Tensors that share memory count once."""

    def __init__(self, shortage: Shortage) -> None:
        self._shortage = shortage
        self._counted: set[int] = set()
        self._is_short: dict[Any, bool] = {}

    def count_training(self, optimizers: list[Any], roots: list[Any]) -> dict[str, int]:
        """Return the bytes of parameters, of their gradients, and of the state of optimizers."""
        parameters = [*_list_held(optimizers), *_list_parameters(roots)]
        leaves = (each for each in parameters if _BASE.is_leaf.__get__(each))  # others warn where their grad is read
        gradients = [_BASE.grad.__get__(each) for each in leaves]
        states = [state for each in optimizers for state in _list_values(_read(each, "state"))]
        return {
            "parameter_bytes": sum(map(self._count, parameters)),
            "gradient_bytes": sum(map(self._count, _select(gradients, torch.Tensor))),
            "optimizer_bytes": sum(self._count(each) for state in states for each in _list_tensors(state)),
        }

    def list_largest(self, shown: Iterable[tuple[Any, Mapping[str, Any]]]) -> list[dict[str, Any]]:
        """Return the largest local tensors, and lists of tensors, that are not counted yet."""
        found = []
        for frame, names in shown:
            for name, value in list(names.items()):
                tensors = [value] if _is_a(value, torch.Tensor) else _list_tensors(value, _MOST_LOCAL)
                size = sum(map(self._count, tensors))
                if size:
                    found.append((size, name, name_function(frame), tensors[0], len(tensors)))
        found.sort(key=lambda each: -each[0])
        return [
            {
                "bytes": size,
                "name": name[:_LONGEST],
                "function": function[:_LONGEST],
                "shape": [int(each) for each in _BASE.shape.__get__(tensor)[:_MOST_SHOWN]],
                "dtype": str(_BASE.dtype.__get__(tensor)).removeprefix("torch."),
                "count": count,
            }
            for size, name, function, tensor, count in found[:MOST_TENSORS]
        ]

    def _count(self, tensor: Any) -> int:
        """Return the bytes of a tensor's storage, 0 if they were counted before or lie elsewhere."""
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter) and (inner := _list_inner(tensor)):
            return sum(map(self._count, inner))
        try:
            device = _BASE.device.__get__(tensor)
            if device not in self._is_short:
                self._is_short[device] = self._shortage.concerns(device)
            if not self._is_short[device]:
                return 0
            storage = _BASE.untyped_storage(tensor)
            key, size = storage._cdata, storage.nbytes()
        except (RuntimeError, NotImplementedError):  # a tensor without a storage, such as a sparse one
            return 0
        if key in self._counted:
            return 0
        self._counted.add(key)
        return int(size)


def _list_inner(tensor: Any) -> list[Any]:
    """Return the tensors that a tensor of another class than PyTorch's own consists of, such as the local part of a
    DTensor."""
    held = gc.get_referents(tensor)
    return _select([*held, *(value for each in held if type(each) is dict for value in each.values())], torch.Tensor)


def _list_tensors(value: Any, most: int = _MOST_ITEMS) -> list[Any]:
    return _select(_list_values(value, most), torch.Tensor)


def _list_values(value: Any, most: int = _MOST_ITEMS) -> list[Any]:
    """Return the first items of a list, a tuple or a dict; nothing for another object, and for a longer dict."""
    if type(value) in (list, tuple):
        return list(value[:most])
    return list(dict.values(value)) if _is_a(value, dict) and dict.__len__(value) <= most else []


def _list_held(optimizers: list[Any]) -> Iterator[Any]:
    for optimizer in optimizers:
        for group in _list_values(_read(optimizer, "param_groups")):
            yield from _list_tensors(dict.get(group, "params"))


def _list_parameters(roots: list[Any]) -> Iterator[Any]:
    for _, module in _walk(roots):
        yield from _list_tensors(_read(module, "_parameters"))


def _name_module(called: list[Any]) -> str:
    """Return the innermost of the called modules by its name in the outermost one, with its class: `blocks.3 (Block)`.

    The outermost is the user's: what PyTorch wraps around it, such as DDP, is left out.
    """
    inner, kind = called[0], type(called[0]).__name__
    root = next((each for each in reversed(called) if not type(each).__module__.startswith(_WRAPPERS)), inner)
    name = next((name for name, each in _walk([root]) if each is inner), "")
    return f"{name} ({kind})" if name else kind


def _walk(roots: list[Any]) -> Iterator[tuple[str, Any]]:
    """Yield modules with their names, each once."""
    waiting, seen = [("", root) for root in roots], set[int]()
    while waiting and len(seen) < _MOST_MODULES:
        name, module = waiting.pop()
        if id(module) in seen or not _is_a(module, torch.nn.Module):
            continue
        seen.add(id(module))
        yield name, module
        children = list(dict.items(_read(module, "_modules")))
        waiting += [(f"{name}.{key}" if name else str(key), child) for key, child in children]


def _read(owner: Any, name: str) -> Any:
    """Return an attribute of PyTorch's own, past all properties and `__getattr__` of the user's class."""
    return object.__getattribute__(owner, "__dict__").get(name, {})


def _select(values: Iterable[Any], kind: type) -> list[Any]:
    """Return the objects of a class, each once."""
    return list({id(value): value for value in values if _is_a(value, kind)}.values())


def _is_a(value: Any, kind: type) -> bool:
    """Return what `isinstance` returns for an object that does not pretend to be of another class."""
    return issubclass(type(value), kind)


def _is_library(file: str) -> bool:
    return file.startswith((_OURS, "<")) or any(part in file for part in LIBRARIES)


def _find_phase(files: list[str]) -> str:
    """Return the phase of the outermost call of PyTorch, "" outside of all. Work within an optimizer's closure is of its
    own phase."""
    found = [_PHASES[file] for file in reversed(files) if file in _PHASES]
    return next((phase for phase in found if phase != "optimizer"), found[0] if found else "")


SIGNAL = OutOfMemorySignal
