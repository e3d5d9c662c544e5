"""Python that runs within a phase beside the modules and calls of torch: mining pairs, metrics, losses in loops.

A sample counts if the innermost code of the user's is in no module, and what that calls is no code of torch. Operators
that the user's code calls by itself are written in C++ and leave no frame, so their time has to be taken off.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from profiler_server.analysis.stacks.frames import Frame
from profiler_server.analysis.stacks.naming import Function, bound_share, find_entry, name_entries
from profiler_server.diagnosis.limits.stacks import NEARLY_ALL_FRAC
from profiler_server.facts.steps import OwnWork

_MODULE_CALLS = ("_call_impl", "_wrapped_call_impl")
_MOST_NAMED = 2

Stack = tuple[Frame, ...]


def find_own_work(weights: Mapping[Stack, int], loop: frozenset[Function]) -> OwnWork | None:
    """Return the work of the user's own in a phase, None where no sample is any; `loop` are the functions of the loop."""
    whole = sum(weights.values())
    own = {stack: samples for stack, samples in weights.items() if _is_own(stack, find_entry(stack, loop))}
    found = sum(own.values())
    if not found:
        return None
    training = loop | _find_callers(stack for stack in weights if stack not in own)
    shared = _find_shared(own, training)
    entries = {(stack, _find_start(stack, training, shared)): samples for stack, samples in own.items()}
    low, high = bound_share(found, whole)
    return OwnWork(found, found / whole, low, high, name_entries(entries)[:_MOST_NAMED])


def _is_own(stack: Stack, entry: int) -> bool:
    at = _find_innermost(stack)
    if at is None or any(frame.is_unknown for frame in stack[entry:]):  # a module may have been left out
        return False
    in_module = any(_runs_module(frame) for frame in stack[entry : at + 1])
    return not in_module and all(frame.package != "torch" for frame in stack[at + 1 :])


def _runs_module(frame: Frame) -> bool:
    called = frame.package == "torch" and frame.name.rpartition(".")[2] in _MODULE_CALLS
    return called or (not frame.package and frame.name.rpartition(".")[2] == "forward")


def _updates(frame: Frame) -> bool:
    return frame.package == "torch" and (frame.name.rpartition(".")[2] == "backward" or "/torch/optim/" in frame.file)


def _find_innermost(stack: Stack) -> int | None:
    return next((place for place in reversed(range(len(stack))) if not stack[place].package), None)


def _find_callers(stacks: Iterable[Stack]) -> frozenset[Function]:
    """Return the user's functions that call modules, a backward or an optimizer: these train, whatever else they do."""
    callers: set[Function] = set()
    for stack in stacks:
        inside = next((at for at, frame in enumerate(stack) if _runs_module(frame) or _updates(frame)), 0)
        callers.update(frame.function for frame in stack[:inside] if not frame.package)
    return frozenset(callers)


def _find_shared(own: Mapping[Stack, int], training: frozenset[Function]) -> Function | None:
    """Return the innermost function below those that train which nearly all of the work runs in."""
    seen: dict[Function, int] = {}
    depth: dict[Function, int] = {}
    for stack, samples in own.items():
        for at, frame in enumerate(stack):
            if not frame.package and not frame.is_comprehension and frame.function not in training:
                depth[frame.function] = max(depth.get(frame.function, 0), at)
        for function in {frame.function for frame in stack}:
            seen[function] = seen.get(function, 0) + samples
    least = NEARLY_ALL_FRAC * sum(own.values())
    shared = [function for function in depth if seen[function] >= least]
    return max(shared, key=lambda function: (depth[function], function), default=None)


def _find_start(stack: Stack, training: frozenset[Function], shared: Function | None) -> int:
    """Return how many of the outermost frames lie outside of what is named."""
    at = next((place for place, frame in enumerate(stack) if frame.function == shared), None)
    if at is not None:
        return at
    last = max((place for place, frame in enumerate(stack) if frame.function in training), default=-1)
    return last + 1
