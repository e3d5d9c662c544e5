"""Number the loaders of a run and their epochs, and count the samples in a batch of any loader."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

from collector.edge import log_failure

_MOST_GONE = 32
_MOST_SAMPLES = (1 << 32) - 1
_log = logging.getLogger("stepscope")


@dataclass
class _Numbered:
    """A loader with its `number`. `traits` is None or what a later object needs to take its number. `epochs` counts the
    epochs begun, by all objects of this number; `remade` counts the objects before the current one."""

    number: int
    traits: Hashable
    loader: weakref.ref[Any]
    epochs: int = 0
    remade: int = 0


class LoaderRegistry:
    """A register of loaders, numbered from 0 by first use, and of their epochs from 1.

    The registry keeps no loader alive and sets no attribute on it. If a loop makes its loader anew for every epoch,
    each new loader takes the number of the similar loader that is gone.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._known: dict[int, _Numbered] = {}
        self._gone: dict[Hashable, _Numbered] = {}

    def number(self, loader: Any) -> int:
        """Return the number of a loader, assigned at its first use."""
        return self._find(loader).number

    def epoch(self, loader: Any) -> int:
        """Return the number of the last epoch begun of a loader, 0 before the first epoch.

        A new epoch begins when `_BaseDataLoaderIter.__init__` is entered, or its `_reset` with persistent workers.
        """
        return self._find(loader).epochs

    def begin_epoch(self, loader: Any) -> int:
        """Note that the loader begins its next epoch, and return the number of this epoch."""
        entry = self._find(loader)
        with self._lock:
            entry.epochs += 1
            return entry.epochs

    def remade(self, loader: Any) -> int:
        """Return how many earlier loaders had the number of this one. They no longer exist."""
        return self._find(loader).remade

    def _find(self, loader: Any) -> _Numbered:
        key = id(loader)
        entry = self._known.get(key)
        if entry is not None and entry.loader() is loader:
            return entry
        traits = _list_traits(loader)
        with self._lock:
            entry = self._gone.pop(traits, None) if traits is not None else None
            own = weakref.ref(loader, lambda gone: self._forget(key, gone))
            if entry is None:
                entry = _Numbered(self._count, traits, own)
                self._count += 1
            else:
                entry.loader, entry.remade = own, entry.remade + 1
            self._known[key] = entry
            return entry

    def _forget(self, key: int, gone: weakref.ref[Any], most: int = _MOST_GONE) -> None:
        # Read without the lock, which this thread may already hold: the garbage collector can run at any time. It can
        # also run at the end of the interpreter, when the names of this module no longer exist.
        entry = self._known.get(key)
        if entry is None or entry.loader is not gone:
            return
        self._known.pop(key, None)
        if entry.traits is not None and len(self._gone) < most:
            self._gone[entry.traits] = entry


def _list_traits(loader: Any) -> Hashable:
    """Return the classes and settings that a loader shares with a later replacement; None if it is no DataLoader."""
    with log_failure("two data loaders cannot be compared", level=logging.DEBUG):
        kinds = (loader, loader.dataset, loader.sampler, loader.collate_fn)
        names = tuple(f"{type(kind).__module__}.{type(kind).__qualname__}" for kind in kinds)
        length = len(loader.dataset) if hasattr(type(loader.dataset), "__len__") else None
        settings = (loader.batch_size, loader.num_workers, loader.prefetch_factor, loader.pin_memory, length)
        return names, tuple(map(repr, settings))
    return None


def count_samples(batch: Any, depth: int = 4, collated: bool = True) -> int:
    """Return the length of the first tensor or list found in the batch, 0 if none is found cheaply.

    The search looks into the first item of nested lists and dicts, `depth` levels deep. If `collated` is False, the
    batch may be a single sample, so a vector or a number in it counts as one sample.
    """
    try:
        return _look_for_samples(batch, depth, collated)
    except Exception as error:  # noqa: BLE001  an edge on the hot path: a batch of the user's may be anything
        _log.debug("stepscope: the samples of a batch are not counted: %r", error)
        return 0


def _look_for_samples(batch: Any, depth: int, collated: bool) -> int:
    for _ in range(depth):
        kind = type(batch)
        if kind is list or kind is tuple or isinstance(batch, (list, tuple)):
            if not batch:
                return 0
            first = batch[0]
            if isinstance(first, (str, int, float)):
                return len(batch)
            batch = first
        elif isinstance(batch, dict):
            # Not the mapping's own values(): a mapping that reads lazily must read no earlier than without Stepscope.
            batch = next(iter(dict.values(batch)), None)
        else:
            break
    shape = getattr(batch, "shape", None)
    if not collated and shape is not None and len(shape) < 2:
        return 1
    return min(max(int(shape[0]), 0), _MOST_SAMPLES) if shape is not None and len(shape) else 0
