"""Find padded batches and repeated calls of a model, in the arguments of the outermost modules during a few steps.

Tensors on processors are read by NumPy, at most 2^18 numbers of each; masks by their names, wherever they are
(`collector/context/tokens.py`). The steps that are read become rarer as the run goes on.
"""

from __future__ import annotations

import itertools
import logging
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
from collector.context.padding import MOST_NUMBERS, MOST_ROWS, MOST_SAMPLED, count_positions, find_in_call, take_mask
from collector.context.signals import Signal, SignalContext
from collector.context.tokens import Pending, Tokens, count_tokens
from collector.edge import hide_frames, log_failure

if TYPE_CHECKING:
    import numpy.typing as npt

FIRST_LOOK = 16
"""Number of steps after which a step is read for the first time; later readings come after twice as many steps each."""
LOADER_NAME = "DataLoader"
"""The name that stands for a module in the examination of a loader's batches."""
MOST_CALLS, MOST_PLACES, MOST_TENSORS = 8, 16, 8
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
    whose rows were compared. `looks` are the numbers of the read steps. `tokens` counts positions of batches with named
    tensors, in `token_rows` rows; `real` are no padding, and `trained` count in the loss, -1 if unknown.
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
    tokens: int = 0
    real: int = 0
    trained: int = 0
    token_rows: int = 0
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

    def add(self, step: int, arrays: Sequence[npt.NDArray[Any]], tokens: Tokens | None) -> None:
        """Add a call in step `step`. `arrays` are its tensors on a processor."""
        self.calls += 1
        self.looks.add(step)
        found = take_mask(tokens) if tokens is not None and tokens.is_masked else find_in_call(arrays)
        self.padded += found is not None
        self.useful += found.useful_frac if found is not None else 1.0
        self.longest += found.longest_frac if found is not None else 1.0
        if found is not None:
            is_first = self.padded == 1
            self.width = found.width if is_first or self.width == found.width else 0
            self.rows = found.rows if is_first or self.rows == found.rows else 0
        positions = tokens.rows * tokens.width if tokens is not None else count_positions(arrays)
        self.positions += found.width * found.rows if found is not None else positions
        if tokens is not None:
            self.tokens += positions
            self.token_rows += tokens.rows
            self.real += tokens.real if tokens.is_masked or found is None else round(found.useful_frac * tokens.real)
            self.trained = self.trained + tokens.trained if min(tokens.trained, self.trained) >= 0 else -1

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
            "tokens": self.tokens,
            "token_rows": self.token_rows,
            "real": self.real,
            "trained": self.trained,
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
        self.pending: list[tuple[Place, int, Pending]] = []

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
        arrays = [array for tensor in _list_tensors(given) if (array := view_numbers(tensor)) is not None]
        tokens = count_tokens(given) if getattr(module, "training", True) else None
        if isinstance(tokens, Pending):
            self.pending.append((place, self.step, tokens))
        else:
            place.add(self.step, arrays, tokens)
        self._compare(place, took_ns, module, arrays, list(_list_tensors(result)))

    def settle(self) -> None:
        """Add the calls whose tokens a GPU has counted meanwhile."""
        pending, self.pending = self.pending, []
        for place, step, tokens in pending:
            if (found := tokens.read()) is None:
                self.pending.append((place, step, tokens))
            else:
                place.add(step, (), found)

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
        models = {
            key[0] for key, place in self.places.items() if place.padded or place.again or place.known or place.tokens
        }
        return [place.describe(*key) for key, place in self.places.items() if key[0] in models]


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
        self._settle()
        self._publish()  # a module may have changed since the last examination

    def _on_occasion(self, ended: int) -> None:
        if self._look.pending:
            self._settle()
            self._publish()
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

    def _settle(self) -> None:
        with log_failure("tokens could not be counted on the device", level=logging.DEBUG):
            self._look.settle()

    def _publish(self) -> None:
        found = self._look.describe()
        if found != self._found:
            self._found = found
            self._context.add_fact("calls", found)


SIGNAL = CallsSignal
