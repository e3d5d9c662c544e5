"""Number the DataLoaders of a run and their epochs: the one place that says which loader, which epoch.

May import the standard library only. Must not import torch.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any


class LoaderRegistry:
    """Loaders by order of first use, from 0; epochs of each from 1. Holds no loader alive, leaves nothing on them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._known: dict[int, tuple[weakref.ref[Any], int]] = {}
        self._epochs: dict[int, int] = {}

    def number(self, loader: Any) -> int:
        """Return the number of a loader, giving it the next one at its first use."""
        with self._lock:
            entry = self._known.get(id(loader))
            if entry is not None and entry[0]() is loader:
                return entry[1]
            number = self._count
            self._count += 1
            key = id(loader)
            self._known[key] = (weakref.ref(loader, lambda _: self._forget(key, number)), number)
            return number

    def epoch(self, loader: Any) -> int:
        """Return the epochs begun so far: the current one, 0 before the first. Inside of the start of an iterator the
        new epoch begins when `_BaseDataLoaderIter.__init__` (or `_reset` of persistent workers) is entered."""
        return self._epochs.get(self.number(loader), 0)

    def begin_epoch(self, loader: Any) -> int:
        """Count one more epoch and return its number."""
        number = self.number(loader)
        with self._lock:
            self._epochs[number] = self._epochs.get(number, 0) + 1
            return self._epochs[number]

    def _forget(self, key: int, number: int) -> None:
        # Without the lock, which this thread may hold: a collection can come at any time.
        self._epochs.pop(number, None)
        entry = self._known.get(key)
        if entry is not None and entry[1] == number:
            self._known.pop(key, None)
