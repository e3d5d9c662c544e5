"""A function whose result is kept until one of the files behind it changes.

The result of a rank with millions of slices (trace events) takes seconds. Functions with a `file` keep these results
beside the rank's tables, also when the server restarts. A page does not wait for them, but shows that they are being
computed. Results of smaller ranks are computed at once and kept in memory only.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, update_wrapper
from typing import Any, Generic, ParamSpec, TypeVar, get_type_hints

import pyarrow as pa

from collector.format.run import RankRun, Run
from collector.format.schema.errors import RunError
from profiler_server.derive.records import Records
from profiler_server.derive.stamps import stamp_rank, stamp_ranks
from profiler_server.derive.store import Entry, find_store

AT_ONCE_SLICES = 1_000_000
"""Slices of a rank above which long computations run in the background, so that the page does not wait."""
MOST_SLICES = 20_000_000
"""The number of slices of a rank above which a page shows no result: computing it would take gigabytes. The timeline
has no limit."""
P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class NotReady:
    """The reason why a page shows no result, as a sentence. `pending` is True if the result will come later. It is
    False if no result will come, because the rank is too large.
    """

    reason: str
    pending: bool


class Derived(Generic[P, T]):
    """A function whose result is kept. A call waits for the result, and `find` never computes. `peek` computes the
    results of small ranks at once, and those of large ranks in the background."""

    def __init__(
        self,
        compute: Callable[P, T],
        reads: Callable[..., tuple[object, ...]] | None,
        file: str,
        is_sound: Callable[[Any], bool],
    ) -> None:
        self._compute = compute
        self._reads = reads
        self._file = file
        self._is_sound = is_sound
        update_wrapper(self, compute)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the result for the files in their present state, however long it takes. Exceptions pass through."""
        return self.answer(self.ask(*args, **kwargs))

    def answer(self, asked: Asked[T]) -> T:
        if not self._file or count_slices(asked.rank) <= AT_ONCE_SLICES:
            return find_store().keep(asked.key, asked.stamp, asked.compute)
        with find_store().one_large:
            value = self.read(asked)
            # Computing takes hundreds of megabytes, and the server runs for weeks.
            pa.default_memory_pool().release_unused()
        return value

    def find(self, asked: Asked[T]) -> Entry[T] | None:
        """Return the result from memory, even if its files have changed since; None if it is not in memory."""
        return find_store().find(asked.key)

    def peek(self, *args: P.args, **kwargs: P.kwargs) -> T | NotReady:
        """Return the result, or the reason why it is not ready. The result of a rank with over a million slices is
        computed in the background, that of any other rank in this call.

        While a rank records, its result may be seconds old. Exceptions of the function pass through, whether it ran
        in this call or in the background.
        """
        store, asked = find_store(), self.ask(*args, **kwargs)
        slices = count_slices(asked.rank)
        if slices <= AT_ONCE_SLICES:
            return self.answer(asked)
        earlier = self.find(asked)
        if (entry := self.recall(asked)) is not None:
            return entry.value
        if slices > MOST_SLICES:
            return NotReady(explain_too_large(asked.rank, slices), False)
        if (failure := store.background.take_failure(asked.key)) is not None:
            raise failure
        store.background.start(asked.key, lambda: self.answer(asked))
        if earlier is not None and asked.rank.state == "recording":
            return earlier.value
        return NotReady(f"{slices:,} slices are read in the background; what they tell appears here.", True)

    def ask(self, *args: P.args, **kwargs: P.kwargs) -> Asked[T]:
        """Return the call as data: the key of its result, the stamp of the files behind it, and the computation."""
        read = (*args, *kwargs.values()) if self._reads is None else self._reads(*args, **kwargs)
        return Asked((self, find_store().name(read)), read, lambda: self._compute(*args, **kwargs))

    def recall(self, asked: Asked[T]) -> Entry[T] | None:
        """Return the result for the files in their present state from memory, or else from disk; None if it is in
        neither."""
        entry = self.find(asked)
        if entry is not None and entry.stamp == asked.stamp:
            return entry
        entry = self._records.find(asked.rank, asked.stamp)
        if entry is not None:
            find_store().put(asked.key, asked.stamp, entry.value)
        return entry

    def read(self, asked: Asked[T]) -> T:
        """Return the result for the files in their present state from memory or disk. If it is in neither, compute
        it and keep it in both."""
        entry = self.recall(asked)
        if entry is not None:
            return entry.value
        value = find_store().put(asked.key, asked.stamp, asked.compute())
        self._records.write(asked.rank, asked.stamp, value)
        return value

    @cached_property
    def _records(self) -> Records[T]:
        return Records(self._file, get_type_hints(self._compute)["return"], self._is_sound)


def derived(
    reads: Callable[..., tuple[object, ...]] | None = None,
    file: str = "",
    is_sound: Callable[[Any], bool] = lambda result: True,
) -> Callable[[Callable[P, T]], Derived[P, T]]:
    """Return a decorator that keeps the results of a function, whose arguments are runs, ranks, plain values and other
    results of derived functions.

    `reads` gets the arguments and returns the values on which the result depends, by default all arguments. `file` is a
    unique name under which the results of ranks with over a million slices are kept on disk; "" keeps results in memory
    only. With a `file`, the first argument must be the rank, and the result must consist of dataclasses, numbers, texts
    and arrays of int64, float64 or float32. `is_sound` returns whether a result that comes from disk is valid, because
    anyone who can write beside the tables can forge a result.
    """
    return lambda compute: Derived(compute, reads, file, is_sound)


class Asked(Generic[T]):
    """A call of a derived function: key of its result, stamp of the files behind its arguments, and the computation."""

    def __init__(self, key: Hashable, read: tuple[object, ...], compute: Callable[[], T]) -> None:
        self.key = key
        self.compute = compute
        self._read = read

    @cached_property
    def stamp(self) -> Hashable:
        return tuple(map(_stamp, self._read))

    @property
    def rank(self) -> RankRun:
        (rank, *_) = self._read
        assert isinstance(rank, RankRun), "what is on disk belongs to a rank"
        return rank


def _stamp(argument: object) -> Hashable:
    if isinstance(argument, RankRun):
        return stamp_rank(argument.run_path, argument.rank)
    if isinstance(argument, Run):
        with suppress(RunError):  # whoever reads a run that is gone says so
            return stamp_ranks(argument.path, argument.ranks)
    return argument if isinstance(argument, (str, int, float)) else None


def count_slices(rank: RankRun) -> int:
    """Return the number of rows of the table `slices`; 0 if they cannot be counted."""
    try:
        return rank.count_rows("slices")
    except (RunError, OSError, pa.ArrowException):
        return 0


def explain_too_large(rank: RankRun, slices: int) -> str:
    return (
        f"{slices:,} slices are not summed beside a page; `stepscope report {rank.run_path}` does it, "
        "which takes minutes and gigabytes of memory."
    )
