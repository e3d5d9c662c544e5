"""The mean step by lines of the user's code: every sample of the training thread belongs to the user's innermost frame.

A function with a small share is no hotspot: its samples go to the line that calls it. A function also gets the time
that the backward spends on its results. For example, a lookup of few rows is short, but the gradient of all rows is
not. The functions of the training loop are divided into their lines, because these lines do different things. Samples
of a phase share the time of that phase, which is known exactly. So only the division within phases has an error of
sampling.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from profiler_server.analysis.stacks.frames import Frame
from profiler_server.analysis.stacks.naming import Function, Weights, find_called
from profiler_server.diagnosis.limits.stacks import HOTSPOT_FRAC
from profiler_server.facts.case import Doing, Hotspot, Line, LineCourse, Lines, LineWork

_MOST_LINES, _MOST_CALLS = 3, 3
_MAKING = frozenset(("__init__", "__new__", "__iter__"))
_Z = 1.96
Texts = Mapping[str, Mapping[int, str]]
"""File -> line -> text."""
_Key = tuple[str, str, int]
"""Name and file of a function; its line if the function belongs to the loop, else 0."""


@dataclass(frozen=True)
class _Level:
    """A frame of the user's code in a stack, and the library frames below it up to the user's next frame."""

    key: _Key
    frame: Frame
    line: int
    below: tuple[Frame, ...]


@dataclass
class _Entry:
    """A stack in a phase.

    `at` is the index in `levels` of the frame to which the samples belong, -1 for none. `weight` is the stack's share
    of the step. `backward` is the share of the step that the backward spends on results of this stack.
    """

    phase: str
    levels: Sequence[_Level]
    samples: int
    weight: float
    at: int
    backward: float = 0.0


FindKey = Callable[[Sequence[Frame]], _Key | None]
ReadWork = Callable[[FindKey], Mapping[_Key, LineWork]]
ReadCourse = Callable[[FindKey], Mapping[_Key, LineCourse]]


def find_lines(
    phases: Mapping[str, Weights],
    shares: Mapping[str, float],
    loop: frozenset[Function],
    texts: Texts,
    read_work: ReadWork,
    read_course: ReadCourse,
) -> Lines:
    """Divide the mean step among the user's lines.

    `phases` are the samples of each phase; `shares` is the share of each phase in the step. `read_work` returns the
    operators of each hotspot, `read_course` the change of its time over the run.
    """
    entries = [
        _Entry(phase, levels, samples, shares.get(phase, 0.0) * samples / sum(weights.values()), len(levels) - 1)
        for phase, weights in phases.items()
        for stack, samples in weights.items()
        for levels in [tuple(_list_levels(stack, loop))]
    ]
    through: Counter[str] = Counter()
    for entry in entries:
        passed = {_name_level(level, texts) for level in entry.levels} - {""}
        through.update(dict.fromkeys(passed, entry.weight))
    in_backward = shares.get("backward", 0.0)
    _add_backward(entries, read_work(lambda stack: _find_key(stack, loop)), in_backward)
    _merge_small(entries)
    grouped: dict[_Key, list[_Entry]] = {}
    for entry in entries:
        if entry.at >= 0:
            grouped.setdefault(entry.levels[entry.at].key, []).append(entry)
    totals = {phase: sum(weights.values()) for phase, weights in phases.items()}

    def find_key(stack: Sequence[Frame]) -> _Key | None:
        return _find_key(stack, loop, grouped)

    work, course = read_work(find_key), read_course(find_key)
    found = [
        replace(_build(of_key, shares, totals, texts, work.get(key), in_backward), course=course.get(key))
        for key, of_key in grouped.items()
    ]
    hotspots = sorted(found, key=lambda spot: (-spot.share_frac, spot.file, spot.function, spot.lines[0].number))
    large = tuple(spot for spot in hotspots if spot.whole_frac >= HOTSPOT_FRAC)
    foreign = sum(entry.weight for entry in entries if entry.at < 0)
    unseen = sum(share for phase, share in shares.items() if phase not in phases)
    rest = sum(spot.share_frac for spot in hotspots if spot.whole_frac < HOTSPOT_FRAC)
    return Lines(sum(entry.samples for entry in entries), large, rest, foreign, unseen, dict(through))


def _find_key(stack: Sequence[Frame], loop: frozenset[Function], keys: Container[_Key] | None = None) -> _Key | None:
    """Return the innermost of the user's functions in a stack; with `keys`, the innermost one among these."""
    levels = list(_list_levels(stack, loop))
    return next((level.key for level in reversed(levels) if keys is None or level.key in keys), None)


def _add_backward(entries: Sequence[_Entry], work: Mapping[_Key, LineWork], in_backward: float) -> None:
    """Set `backward` of each entry. It is known for each function, and divided among the function's entries by weight."""
    own = [entry for entry in entries if entry.at >= 0 and entry.levels[-1].key in work]
    weights: Counter[_Key] = Counter()
    for entry in own:
        weights[entry.levels[-1].key] += entry.weight  # type: ignore[assignment]
    for entry in own:
        key = entry.levels[-1].key
        entry.backward = in_backward * work[key].backward_frac * entry.weight / (weights[key] or 1.0)


def _list_levels(stack: Sequence[Frame], loop: frozenset[Function]) -> Iterator[_Level]:
    """Yield the user's frames, outermost first. Comprehensions and functions made by decorators count as their caller."""
    own = [at for at, frame in enumerate(stack) if not frame.package]
    kept = [at for at in own if not stack[at].is_comprehension and not stack[at].is_wrapper]
    for at, after in itertools.pairwise([*kept, len(stack)]):
        inside = [stack[place] for place in own if at <= place < after]
        line = next((part.line for part in reversed(inside) if part.file == stack[at].file), stack[at].line)
        frame = stack[at]
        below = stack[own[own.index(at) + len(inside) - 1] + 1 : after]
        number = line if frame.function in loop else 0
        yield _Level((frame.name, frame.file, number), frame, line, tuple(below))


def _name_level(level: _Level, texts: Texts) -> str:
    """Return a name of a frame that is the same in another run, where line numbers may differ: the function, or the
    text of the loop's line.
    """
    return level.frame.label if not level.key[2] else texts.get(level.frame.file, {}).get(level.line, "")


def _merge_small(entries: Sequence[_Entry]) -> None:
    """Give the samples of a function with a small share to its callers, the innermost functions first."""
    while True:
        weights: dict[_Key, float] = {}
        depths: dict[_Key, int] = {}
        for entry in entries:
            if entry.at >= 0:
                key = entry.levels[entry.at].key
                weights[key] = weights.get(key, 0.0) + entry.weight + entry.backward
                depths[key] = max(depths.get(key, 0), entry.at)
        small = [key for key, weight in weights.items() if weight < HOTSPOT_FRAC and depths[key] and not key[2]]
        if not small:
            return
        chosen = max(small, key=lambda key: (depths[key], key))
        for entry in entries:
            while entry.at > 0 and entry.levels[entry.at].key == chosen:
                entry.at -= 1


def _makes(level: _Level) -> bool:
    """Return whether a sample at this level lies in the making of an object or an iterator.

    An `__iter__` of the user's own does not count: it is mostly a generator, which also makes the items.
    """
    own, *below = (frame.name.rpartition(".")[2] for frame in (level.frame, *level.below))
    return own in _MAKING - {"__iter__"} or not _MAKING.isdisjoint(below)


def _build(
    entries: Sequence[_Entry],
    shares: Mapping[str, float],
    totals: Mapping[str, int],
    texts: Texts,
    work: LineWork | None,
    in_backward: float,
) -> Hotspot:
    first = entries[0].levels[entries[0].at]
    lines: Counter[int] = Counter()
    calls: Counter[str] = Counter()
    inside: Counter[str] = Counter()
    made = 0.0
    callers: Counter[str] = Counter()
    doings: Counter[Doing] = Counter()
    phases: Counter[str] = Counter()
    samples: Counter[str] = Counter()
    for entry in entries:
        level = entry.levels[entry.at]
        lines[level.line] += entry.weight  # type: ignore[assignment]
        phases[entry.phase] += entry.weight  # type: ignore[assignment]
        samples[entry.phase] += entry.samples
        doings[_name_doing(level.below)] += entry.weight  # type: ignore[assignment]
        if level.below:
            calls[find_called(level.below).label] += entry.weight  # type: ignore[assignment]
            inside[level.below[-1].label] += entry.weight  # type: ignore[assignment]
        if _makes(level):
            made += entry.weight
        if entry.at and not entry.levels[entry.at - 1].key[2]:
            caller = entry.levels[entry.at - 1]
            callers[f"{caller.frame.base}:{caller.line}"] += entry.weight  # type: ignore[assignment]
    share = sum(phases.values())
    spread = sum(
        shares[phase] ** 2 * (part := count / totals[phase]) * (1 - part) / totals[phase]
        for phase, count in samples.items()
    )
    half = _Z * math.sqrt(spread)
    known = texts.get(first.frame.file, {})
    return Hotspot(
        function=first.frame.label,
        file=first.frame.file,
        lines=tuple(Line(number, part, known.get(number, "")) for number, part in lines.most_common(_MOST_LINES)),
        samples=samples.total(),
        share_frac=share,
        low_frac=max(share - half, 0.0),
        high_frac=min(share + half, 1.0),
        phases=dict(phases),
        calls=dict(calls.most_common(_MOST_CALLS)),
        inside=dict(inside.most_common(_MOST_CALLS)),
        made_frac=made,
        caller=callers.most_common(1)[0][0] if callers else "",
        doing=doings.most_common(1)[0][0],
        is_of_loop=bool(first.key[2]),
        work=work,
        backward_frac=in_backward * work.backward_frac if work is not None else 0.0,
    )


def _name_doing(below: Sequence[Frame]) -> Doing:
    """Return the part of a training loop that the frames `below` a line belong to, such as the loader; "" for none."""
    for frame in below:
        if frame.package != "torch":
            continue
        if frame.name.rpartition(".")[2] == "backward":
            return "backward"
        if "/torch/optim/" in frame.file:
            return "update"
        if "/torch/utils/data/" in frame.file:
            return "loader"
    return ""
