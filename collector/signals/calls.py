"""Find padded batches and repeated calls of a model, in the arguments of the outermost modules during a few steps.

Only tensors on processors are read, at most 2^18 numbers of each, by NumPy: nothing runs in PyTorch. The steps that are
read become rarer as the run goes on.
"""

from __future__ import annotations

import itertools
import logging
import math
import os
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

import torch

from collector.context.hooks import find_place, find_tracer, skip_code, stop_calling
from collector.context.numbers import take_some, view_numbers
from collector.context.signals import Signal, SignalContext
from collector.edge import hide_frames, log_failure

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

FIRST_LOOK = 16
"""Number of steps after which a step is read for the first time; later readings come after twice as many steps each."""
LOADER_NAME = "DataLoader"
"""The name that stands for a module in the examination of a loader's batches."""
MOST_CALLS, MOST_PLACES, MOST_TENSORS = 8, 16, 8
MOST_ROWS, MOST_NUMBERS, MOST_SAMPLED = 64, 1 << 18, 4096
LEAST_ROWS, LEAST_TIME, LEAST_LENGTHS = 4, 8, 3
INSIDE_FRAC = 0.05
"""If a fill value takes more than this share of the rows before their padding, it is an ordinary value: zeros of sparse
features, of image borders, of random masks."""
LEAST_VALUES = 8
"""Rows with fewer different values are not compared: they may be equal by chance."""
MOST_OF_ROW, MOST_KNOWN = 64, 4096
"""The greatest number of values compared in a row, and of rows remembered for each line."""
MOST_PARAMETERS, MOST_OF_PARAMETER = 256, 4
_ROUNDED_BITS = 13
"""The number of last bits of a float32 result that may depend on the place of a row in its batch."""
_LEFT_OUT = tuple(
    os.path.dirname(os.path.abspath(name)) + os.sep for name in (torch.__file__, os.path.dirname(__file__))
)


@dataclass
class Place:
    """Sums over all read calls of one module class at one line. `padded` counts calls with padding. `useful` and
    `longest` sum the shares of `Padding` (1 for a call without padding); `positions` sums rows × width. `width` and
    `rows` are 0 if the padded batches differ. `again` counts calls that repeat a call of their step, `again_ns` is their
    time. `known` counts the rows, of `compared`, that an earlier step had already; `known_ns` is the time of the calls
    whose rows were compared. `looks` are the numbers of the read steps.
    """

    calls: int = 0
    padded: int = 0
    useful: float = 0.0
    longest: float = 0.0
    positions: int = 0
    width: int = 0
    rows: int = 0
    again: int = 0
    again_ns: int = 0
    compared: int = 0
    known: int = 0
    known_ns: int = 0
    looks: set[int] = field(default_factory=set)
    first_seen: dict[int, int] = field(default_factory=dict)
    counted: set[int] = field(default_factory=set)
    module: Callable[[], Any] | None = None
    state: int = 0

    @property
    def is_changed(self) -> bool:
        """Whether the module's parameters changed after the first call that was read. If so, its results cannot be
        reused.
        """
        module = self.module() if self.module is not None else None
        return module is not None and hash_parameters(module) != self.state

    def describe(self, model: str, place: str) -> dict[str, Any]:
        return {
            "model": model,
            "place": place,
            "looks": len(self.looks),
            "calls": self.calls,
            "padded": self.padded,
            "useful_frac": round(self.useful / max(self.calls, 1), 4),
            "longest_frac": round(self.longest / max(self.calls, 1), 4),
            "positions": self.positions,
            "width": self.width,
            "rows": self.rows,
            "again": self.again,
            "again_ns": self.again_ns,
            "compared": self.compared,
            "known": self.known,
            "known_ns": self.known_ns,
        }


class CallLook:
    """Sums over calls of outermost modules in the few steps that are read. `begin` starts such a step; `see` then
    receives each of its calls.
    """

    def __init__(self) -> None:
        self.places: dict[tuple[str, str], Place] = {}
        self._of_step: dict[Any, int] = {}
        self._calls = 0
        self.step = 0

    def begin(self, step: int) -> None:
        self.step, self._calls = step, 0
        self._of_step.clear()

    def see(self, took_ns: int, module: Any, given: Any, result: Any) -> None:
        self._calls += 1
        name = type(module).__name__ if isinstance(module, torch.nn.Module) else LOADER_NAME
        key = name, find_place(sys._getframe(1), _LEFT_OUT)
        if self._calls > MOST_CALLS or (key not in self.places and len(self.places) >= MOST_PLACES):
            return
        place = self.places.setdefault(key, Place())
        place.calls += 1
        place.looks.add(self.step)
        arrays = [array for tensor in _list_tensors(given) if (array := view_numbers(tensor)) is not None]
        found = find_in_call(arrays)
        place.padded += found is not None
        place.useful += found.useful_frac if found is not None else 1.0
        place.longest += found.longest_frac if found is not None else 1.0
        place.positions += found.width * found.rows if found is not None else _count_positions(arrays)
        if found is not None:
            is_first = place.padded == 1
            place.width = found.width if is_first or place.width == found.width else 0
            place.rows = found.rows if is_first or place.rows == found.rows else 0
        self._compare(place, took_ns, module, arrays, list(_list_tensors(result)))

    def _compare(self, place: Place, took_ns: int, module: Any, arrays: Sequence[Any], results: Sequence[Any]) -> None:
        """Compare a call with the other calls of its step, and its rows with the rows of other steps."""
        outputs = [array for tensor in results if (array := view_numbers(tensor)) is not None]
        if not arrays or not outputs or not _varies(outputs[0]):
            return
        whole = id(module), *map(_sample, arrays), *map(_sample, outputs)
        if whole in self._of_step:
            place.again += 1
            place.again_ns += took_ns
        elif not any(each.requires_grad for each in results):
            place.known_ns += took_ns
            self._compare_rows(place, module, set(hash_rows(arrays, outputs)))
        self._of_step[whole] = 1

    def _compare_rows(self, place: Place, module: Any, found: set[int]) -> None:
        if place.module is None:
            place.module, place.state = weakref.ref(module), hash_parameters(module)
        if place.module() is not module or place.is_changed:  # a copy replaces its original
            place.first_seen.clear()
            place.known = 0
            return
        place.compared += len(found) if place.first_seen else 0
        known = {row for row in found if place.first_seen.get(row, self.step) < self.step}
        # A row that is the same in every batch does not show that other rows repeat.
        place.known += len(known if known == found else known - place.counted)
        place.counted |= known
        if len(place.first_seen) < MOST_KNOWN:
            place.first_seen.update(dict.fromkeys(found - place.first_seen.keys(), self.step))

    def describe(self) -> list[dict[str, Any]]:
        """Return the fact for rank.json: a mapping for each place of modules with padding or repeated calls."""
        for place in self.places.values():
            place.known *= not place.is_changed
        models = {key[0] for key, place in self.places.items() if place.padded or place.again or place.known}
        return [place.describe(*key) for key, place in self.places.items() if key[0] in models]


@dataclass(frozen=True)
class Padding:
    """Padding of a batch of `rows` rows that are `width` long.

    `useful_frac` is the share of the batch that is not padding; `longest_frac` is the unpadded share of the longest
    row.
    """

    useful_frac: float
    longest_frac: float
    width: int
    rows: int


def find_in_call(arrays: Sequence[npt.NDArray[Any]]) -> Padding | None:
    """Return the padding among the arguments of a call, None without. An array of two values (a mask) counts only
    beside another array of equal batch × time.
    """
    for array in arrays:
        beside = sum(other.shape[:2] == array.shape[:2] for other in arrays) > 1
        found = find_padding(array)
        if found is not None and (beside or not _is_mask(array)):
            return found
    return None


def _count_positions(arrays: Sequence[npt.NDArray[Any]]) -> int:
    """Return batch × time of the first argument with such dimensions, 0 if there is none."""
    return next((math.prod(array.shape[:2]) for array in arrays if array.ndim > 1), 0)


def _is_mask(array: npt.NDArray[Any]) -> bool:
    some = take_some(array, MOST_SAMPLED)
    return bool(((some == some.min()) | (some == some.max())).all())


def find_padding(array: npt.NDArray[Any]) -> Padding | None:
    """Return the padding of rows that one value fills up, at their end or at their start, from different places on;
    None without such rows.

    The first dimension of the array is the batch. Any other one may be time, or the width or height of an image.
    """
    if array.ndim < 2 or len(array) < LEAST_ROWS:
        return None
    rows = array[: min(MOST_ROWS, max(MOST_NUMBERS * len(array) // max(array.size, 1), LEAST_ROWS))]
    if rows.size > MOST_NUMBERS:
        return None
    for axis in range(1, rows.ndim):
        if rows.shape[axis] < LEAST_TIME:
            continue
        view = rows.swapaxes(1, axis).reshape(len(rows), rows.shape[axis], -1)
        for side in (slice(None), slice(None, None, -1)):
            if (found := _find_tail(view[:, side], len(array))) is not None:
                return found
    return None


def _find_tail(rows: npt.NDArray[Any], count: int) -> Padding | None:
    """Return the padding at the ends of `rows`, an array of batch × time × features; None without it."""
    import numpy as np

    width = rows.shape[1]
    values, counts = np.unique(rows[:, -1, 0], return_counts=True)
    if 2 * counts.max() < len(rows):
        return None
    is_fill = (rows == values[counts.argmax()]).all(axis=2)
    tails = np.where(is_fill.all(axis=1), width, (~is_fill[:, ::-1]).argmax(axis=1))
    lengths = width - tails
    inside = int(is_fill.sum() - tails.sum())
    if inside > INSIDE_FRAC * lengths.sum() or _is_drawn(lengths, width):
        return None
    return Padding(float(lengths.mean() / width), float(lengths.max() / width), width, count)


def _is_drawn(lengths: npt.NDArray[np.int64], width: int) -> bool:
    """Return whether `lengths`, the unpadded lengths of the rows, cannot be those of real sequences: too few differ, or
    they grow evenly as in a causal mask.
    """
    import numpy as np

    return len(np.unique(lengths)) < LEAST_LENGTHS or len(np.unique(np.diff(lengths))) == 1


def _list_tensors(value: Any, depth: int = 2) -> Iterator[Any]:
    """Yield tensors among the first arguments or results of a call, also from inner dicts and lists."""
    values: Any = value
    if isinstance(value, Mapping):
        values = list(value.values())
    elif not isinstance(value, (list, tuple)):
        values = (value,)
    for each in values[:MOST_TENSORS]:
        if type(each) is torch.Tensor:
            yield each
        elif depth and isinstance(each, (dict, list, tuple)):
            yield from _list_tensors(each, depth - 1)


def _sample(array: npt.NDArray[Any]) -> tuple[Any, ...]:
    return array.shape, str(array.dtype), hash(take_some(array, MOST_SAMPLED).tobytes())


def hash_rows(arrays: Sequence[npt.NDArray[Any]], outputs: Sequence[npt.NDArray[Any]]) -> Iterator[int]:
    """Yield a hash for each row of a batch together with its result. Yield one hash for the whole call if the arrays
    differ in their number of rows.

    Rows of few different values are left out. Results in float16 are compared bit by bit.
    """
    import numpy as np

    sizes = {len(each) if each.ndim > 1 else 0 for each in (*arrays, *outputs)}
    count = min(sizes.pop(), MOST_ROWS) if len(sizes) == 1 else 0
    given = [_take_rows(each, count) for each in arrays]
    ordered = [np.sort(each, axis=1) for each in given]
    varies = np.any([(np.diff(each, axis=1) != 0).sum(axis=1) >= LEAST_VALUES - 1 for each in ordered], axis=0)
    parts = [*given, *(_round(_take_rows(each, count)) for each in outputs)]
    for number in np.flatnonzero(varies):
        yield hash(b"".join(each[number].tobytes() for each in parts))


def _take_rows(array: npt.NDArray[Any], count: int) -> npt.NDArray[Any]:
    """Return some numbers of each of the first `count` rows; with `count` 0, of the whole array as one row."""
    if not count:
        return take_some(array, MOST_OF_ROW)[None]
    size = array[0].size
    every = max(size // MOST_OF_ROW, 1) | 1
    if array.flags.c_contiguous:
        return array[:count].reshape(count, -1)[:, : MOST_OF_ROW * every : every]
    return array[:count].reshape(count, -1)[:, ::every] if count * size <= MOST_NUMBERS else array.flat[:count][:, None]


def hash_parameters(module: Any) -> int:
    """Return a number that almost certainly changes when the parameters of a module change, as all do in an update.
    Only some numbers of each parameter are read.

    The version counters of the parameters are not enough: fused updates and assignments to `.data` do not change them.
    """
    views = map(view_numbers, itertools.islice(module.parameters(), MOST_PARAMETERS))
    return hash(b"".join(take_some(view, MOST_OF_PARAMETER).tobytes() for view in views if view is not None))


def _round(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    import numpy as np

    return array.astype(np.float32).view(np.uint32) >> _ROUNDED_BITS if array.dtype.kind == "f" else array


def _varies(array: npt.NDArray[Any], most: int = MOST_SAMPLED) -> bool:
    import numpy as np

    return len(np.unique(take_some(array, most))) >= LEAST_VALUES


class CallsSignal(Signal):
    """The signal of padding and of repeated calls."""

    name = "calls"

    def install(self, context: SignalContext) -> None:
        self._context = context
        self._look = CallLook()
        self._next = FIRST_LOOK
        self._found: list[dict[str, Any]] = []
        self._watchers = context.call_watchers
        self._may_trace = find_tracer()
        skip_code(CallsSignal._see.__code__)
        context.occasions.append(self._on_occasion)

    def remove(self) -> None:
        stop_calling(self._on_occasion, self._context.occasions)
        self._close()
        self._publish()  # a module may have changed since the last examination

    def _on_occasion(self, ended: int) -> None:
        if ended >= self._next:
            self._next = 2 * ended
            self._look.begin(ended + 1)
            self._watchers[:] = [self._see]

    def _see(self, began_ns: int, module: Any, given: Any, result: Any) -> None:
        if self._may_trace():  # Dynamo would compile this examination, and read the tensors that it holds
            self._watchers.clear()
            return
        try:
            took_ns = perf_counter_ns() - began_ns
            if self._context.steps.ended >= self._look.step:
                self._close()
                return
            with log_failure("a call could not be looked at", level=logging.DEBUG):
                self._look.see(took_ns, module, given, result)
        except BaseException as error:  # Ctrl-C
            hide_frames(error)
            raise

    def _close(self) -> None:
        if self._watchers:
            self._watchers.clear()
            self._publish()

    def _publish(self) -> None:
        found = self._look.describe()
        if found != self._found:
            self._found = found
            self._context.add_fact("calls", found)


SIGNAL = CallsSignal
