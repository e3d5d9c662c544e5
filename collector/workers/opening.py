"""Files that this thread opens through Python's `open`, and how long opening them took.

`open` is exchanged only while a batch is timed. What stands in is no function, so that a class that takes it for an
attribute gets the same call as before. Files that C code opens are not seen.
"""

from __future__ import annotations

import builtins
import io
from threading import get_ident
from time import perf_counter_ns
from typing import Any

from collector.edge import hide_frame
from collector.ring.stage_log import pack_opened

_OWNERS = (builtins, io)


class OpenCounter:
    """Counts between `start` and `stop` on the thread that starts."""

    def __init__(self) -> None:
        self._stand_ins: list[tuple[Any, _CountedOpen]] = []
        self._raw: Any = None
        self.clear()

    def clear(self) -> None:
        self.count = self.duration_ns = 0

    @property
    def packed(self) -> int:
        return pack_opened(self.count, self.duration_ns)

    def start(self) -> None:
        self.clear()
        self.thread = get_ident()
        if self._stand_ins:
            return
        for owner in _OWNERS:
            stand_in = _CountedOpen(owner.open, self)
            self._stand_ins.append((owner, stand_in))
            owner.open = stand_in  # type: ignore[attr-defined]

    def stop(self) -> None:
        """Give `open` back, unless somebody else has exchanged it since."""
        for owner, stand_in in self._stand_ins:
            if owner.open is stand_in:
                owner.open = stand_in.raw
        self._stand_ins.clear()


class _CountedOpen:
    __slots__ = ("_counter", "raw")

    def __init__(self, raw: Any, counter: OpenCounter) -> None:
        self.raw = raw
        self._counter = counter

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        counter = self._counter
        if get_ident() != counter.thread:
            try:
                return self.raw(*args, **kwargs)
            except BaseException as error:
                hide_frame(error)
                raise
        before = perf_counter_ns()
        try:
            return self.raw(*args, **kwargs)
        except BaseException as error:
            hide_frame(error)
            raise
        finally:
            counter.duration_ns += perf_counter_ns() - before
            counter.count += 1

    def __reduce__(self) -> tuple[Any, ...]:
        return _find_open, ()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)


def _find_open() -> Any:
    return builtins.open
