"""The user's functions in which a phase or a stage spends its time.

A sample belongs to the outermost user function below the loop. If the loop calls a library, the sample belongs to this
call. If the loop calls nothing, the sample belongs to the line of the loop. A method through which a library calls the
user's data set, such as `__getitem__`, contains all of a stage. The functions that this method calls are named instead
if they have most of its samples.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from profiler_server.analysis.stacks.frames import Frame
from profiler_server.diagnosis.limits.stacks import (
    ALWAYS_FRAC,
    LEAST_OF_PHASE,
    LEAST_SAMPLES,
    LOOP_FRAC,
    SURE_NAME_FRAC,
)
from profiler_server.facts.steps import NamedFunction

MOST_NAMED = 8
_MOST_DEPTH = 4
_Z = 1.96
_PROTOCOL = re.compile(r"(.*\.)?__([^.]*)__", re.DOTALL)

Function = tuple[str, str]
Weights = Mapping[tuple[Frame, ...], int]
"""Stacks, outermost frame first, with their samples."""


@dataclass(frozen=True)
class _Name:
    label: str
    caller: str
    at: Frame
    is_own_line: bool = False
    is_wrapper: bool = False

    @property
    def key(self) -> tuple[str, str, str, int]:
        return self.label, self.caller, self.at.file, self.at.line if self.is_own_line else 0


def find_loop(phases: Mapping[str, Weights]) -> frozenset[Function]:
    """Return the functions in which every phase runs: the loop and its callers. With too few phases, this is a guess."""
    shares = [_share_functions(weights) for weights in _group_phases(phases)]
    if len(shares) < 2:
        return _guess_loop([entry for weights in phases.values() for entry in weights.items()])
    return frozenset(f for f in shares[0] if all(share.get(f, 0.0) >= LOOP_FRAC for share in shares))


def knows_loop(phases: Mapping[str, Weights]) -> bool:
    """Return whether there are enough phases to determine the loop without a guess."""
    return len(_group_phases(phases)) > 1


def _guess_loop(entries: Sequence[tuple[tuple[Frame, ...], int]]) -> frozenset[Function]:
    """Return a guess of the loop's functions: the code of modules, and the user's functions in which nearly all samples
    lie.

    The innermost of these functions is no loop if most samples are in its own code, because it then takes the time
    itself.
    """
    modules = frozenset(frame.function for stack, _ in entries for frame in stack if frame.name == "<module>")
    whole = sum(samples for _, samples in entries)
    shares = _share_functions(dict(entries)) if whole else {}
    common = {function for function, share in shares.items() if share >= ALWAYS_FRAC}
    own = [frame.function for frame in (entries[0][0] if entries else ()) if not frame.package]
    inner = next((function for function in reversed(own) if function in common), None)
    if inner is None:
        return modules
    calls = sum(samples for stack, samples in entries if stack[-1].function != inner)
    kept = common if calls >= ALWAYS_FRAC * whole else common - {inner}
    return modules | {function for function in own if function in kept}


def _group_phases(phases: Mapping[str, Weights]) -> list[Weights]:
    """Return the phases with enough samples, and the other phases merged into one."""
    large = [weights for weights in phases.values() if sum(weights.values()) >= LEAST_OF_PHASE]
    small: Counter[tuple[Frame, ...]] = Counter()
    for weights in phases.values():
        if sum(weights.values()) < LEAST_OF_PHASE:
            small.update(weights)
    return [*large, small] if small.total() >= LEAST_OF_PHASE else large


def _share_functions(weights: Weights) -> dict[Function, float]:
    seen: Counter[Function] = Counter()
    for stack, samples in weights.items():
        for function in {frame.function for frame in stack}:
            seen[function] += samples
    whole = sum(weights.values())
    return {function: count / whole for function, count in seen.items()}


def name_phase(weights: Weights, loop: frozenset[Function], is_loop_known: bool = True) -> tuple[NamedFunction, ...]:
    """Return the functions in which a phase of the training thread spends its time, the longest first.

    With few samples, a function is named only if its share is certainly large. If the loop is also a guess, no function
    is named.
    """
    found = name_entries({(stack, find_entry(stack, loop)): samples for stack, samples in weights.items()})
    is_enough = sum(weights.values()) >= LEAST_SAMPLES
    return tuple(entry for entry in found if is_enough or (is_loop_known and entry.low_frac >= SURE_NAME_FRAC))


def find_entry(stack: Sequence[Frame], loop: frozenset[Function]) -> int:
    """Return how many of the outermost frames belong to the loop."""
    return next((place for place, frame in enumerate(stack) if frame.function not in loop), len(stack))


def name_stage(weights: Mapping[tuple[tuple[Frame, ...], int], int]) -> tuple[NamedFunction, ...]:
    """Return the functions of a stage, the longest first; empty with few samples. A key is a stack and the number of
    its outer frames that are outside of the stage.
    """
    return name_entries(weights) if sum(weights.values()) >= LEAST_SAMPLES else ()


def cut_worker(stack: tuple[Frame, ...], entry: int) -> tuple[tuple[Frame, ...], int]:
    """Return a worker's stack without the frames of torch's loop and, in a forked worker, of the parent process. Return
    also how many of the remaining frames are outside of the stage; `entry` is their number before.
    """
    fetching = [at for at, frame in enumerate(stack[:entry]) if frame.package == "torch" and frame.base == "fetch.py"]
    outside = fetching[-1] + 1 if fetching else entry
    return stack[outside:], entry - outside


def name_entries(entries: Mapping[tuple[tuple[Frame, ...], int], int]) -> tuple[NamedFunction, ...]:
    """Return the functions of some stacks, the longest first. A key is a stack and its number of outer frames to
    ignore.
    """
    whole = sum(entries.values())
    entrances = _find_entrances(entries)
    sampled = [(_name_sample(stack, entry, entrances), samples) for (stack, entry), samples in entries.items()]
    named: dict[tuple[str, str, str, int], list[tuple[_Name, int]]] = {}
    for name, samples in _unwrap([(name, samples) for name, samples in sampled if name is not None]):
        named.setdefault(name.key, []).append((name, samples))
    found = [_build(names, whole) for names in named.values()]
    return tuple(sorted(found, key=lambda entry: (-entry.samples, entry.function))[:MOST_NAMED])


def _unwrap(named: Sequence[tuple[_Name, int]]) -> Iterator[tuple[_Name, int]]:
    """Yield the names with their samples. Samples in a decorator's own code go to the function that the same line calls
    through the decorator.
    """
    calls: dict[tuple[str, Frame], Counter[_Name]] = {}
    for name, samples in named:
        if name.caller and not name.is_wrapper:
            calls.setdefault((name.caller, name.at), Counter())[name] += samples
    for name, samples in named:
        called = calls.get((name.caller, name.at)) if name.is_wrapper else None
        yield (called.most_common(1)[0][0] if called else name), samples


def _find_entrances(entries: Mapping[tuple[tuple[Frame, ...], int], int]) -> frozenset[Function]:
    """Return the user's methods with special names, such as `__getitem__`, through which libraries call the user's
    code.
    """
    return frozenset(
        frame.function
        for stack, _ in entries
        for frame in stack
        if not frame.package and _PROTOCOL.fullmatch(frame.name)
    )


def _name_sample(stack: Sequence[Frame], entry: int, entrances: frozenset[Function]) -> _Name | None:
    """Return the name of the function called below the first `entry` frames; None for a stack without frames."""
    last: Frame | None = next((frame for frame in reversed(stack[:entry]) if not frame.package), None)
    is_own_line = last is not None
    for _ in range(_MOST_DEPTH):
        own = next((place for place in range(entry, len(stack)) if not stack[place].package), None)
        if own is None:
            break
        is_part = last is not None and stack[own].is_comprehension and stack[own].file == last.file
        last = replace(last, line=stack[own].line) if last is not None and is_part else stack[own]
        entry, is_own_line = own + 1, True
        calls_own = entry < len(stack) and not stack[entry].package
        if last.function in entrances or is_part or (last.is_wrapper and calls_own):
            continue
        return _Name(last.label, "", last)
    if entry < len(stack):
        called = find_called(stack[entry:])
        return _Name(called.label, last.label if last is not None else "", last or called, is_wrapper=called.is_wrapper)
    return _Name(last.label, "", last, is_own_line) if last is not None else None


def find_called(stack: Sequence[Frame]) -> Frame:
    """Return the first public function of the library. Internal functions before it are skipped."""
    inside = itertools.takewhile(lambda frame: frame.package == stack[0].package, stack)
    return next((frame for frame in inside if not frame.is_internal), stack[0])


def _build(names: Sequence[tuple[_Name, int]], whole: int) -> NamedFunction:
    name, samples = names[0][0], sum(count for _, count in names)
    lines: Counter[int] = Counter()
    for entry, count in names:
        lines[entry.at.line] += count
    line = max(lines.items(), key=lambda item: (item[1], -item[0]))[0]
    low, high = bound_share(samples, whole)
    return NamedFunction(
        name.label, name.caller, name.at.file, line, samples, samples / whole, low, high, name.is_own_line
    )


def bound_share(part: int, whole: int) -> tuple[float, float]:
    """Return the bounds of the share of `part` in `whole` counted samples (Wilson's interval, 95 %)."""
    share, square = part / whole, _Z * _Z
    middle = (share + square / (2 * whole)) / (1 + square / whole)
    half = _Z / (1 + square / whole) * math.sqrt(share * (1 - share) / whole + square / (4 * whole * whole))
    return max(middle - half, 0.0), min(middle + half, 1.0)
