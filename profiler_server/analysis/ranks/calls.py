"""The collectives of one rank, ready to be matched with other ranks' collectives."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from collector.format.intervals import Ints, Mask
from collector.format.run import RankRun
from collector.format.schema.errors import TableMissingError
from collector.format.steps import read_integers

MOST_CALLS = 20_000
"""Calls of one rank that are read, from the first; fewer for very many ranks."""
NO_STEP = -1
_COLUMNS = ("step", "name", "group", "index", "start_ns", "duration_ns", "bytes", "group_size", "held_ns")
_MEETINGS = ("allreduce", "allgather", "reducescatter", "alltoall", "barrier")
"""Collectives that no rank leaves before the last rank has entered."""


@dataclass(frozen=True, eq=False)
class Calls:
    """The collectives of one rank in time order. Objects are compared by identity.

    `kind` is an index in `kinds`, which are (group, name). A call is identified by its kind, its `number`, and the step
    within which it is numbered (`counted_in`; NO_STEP if the numbers of the group do not restart in each step).
    `held_ns` is how long the training stood still for the call, -1 if only the length of the call is known.
    """

    kinds: tuple[tuple[str, str], ...]
    kind: Ints
    step: Ints
    counted_in: Ints
    number: Ints
    start_ns: Ints
    duration_ns: Ints
    held_ns: Ints
    bytes: Ints
    group_size: Ints

    @cached_property
    def end_ns(self) -> Ints:
        return self.start_ns + self.duration_ns

    @cached_property
    def waiting_ns(self) -> Ints:
        """Return how long the training waited in each call, in ns: `held_ns`, or the whole call if that is unknown."""
        return np.where(self.held_ns >= 0, np.minimum(self.held_ns, self.duration_ns), self.duration_ns)

    @cached_property
    def meets(self) -> Mask:
        """Return a mask of the calls that all ranks of the group leave together."""
        kinds = np.array([is_meeting(name) for _, name in self.kinds], np.bool_)
        return kinds[self.kind]


def number_groups(kinds: tuple[tuple[str, str], ...], kind: Ints) -> Ints:
    """Return for each call the number of its group. Groups are numbered in order of first appearance in `kinds`."""
    names = {group: at for at, group in enumerate(dict.fromkeys(group for group, _ in kinds))}
    return np.array([names[group] for group, _ in kinds], np.int64)[kind]


def is_meeting(name: str) -> bool:
    plain = name.lower().replace("_", "")
    return any(known in plain for known in _MEETINGS)


def read_calls(rank: RankRun, most: int = MOST_CALLS) -> Calls | None:
    """Read a rank's first `most` collectives, in time order; None without any. TableBrokenError or NewerSchemaError."""
    try:
        table = rank.table("collectives", _COLUMNS)
    except TableMissingError:
        return None
    if not table.num_rows:
        return None
    table = table.sort_by("start_ns").slice(0, most)
    kinds, kind = _number_kinds(table)
    step, index = read_integers(table, "step", NO_STEP), read_integers(table, "index", NO_STEP)
    counted = _is_counted_by_library(kinds, kind, index)
    return Calls(
        kinds=kinds,
        kind=kind,
        step=step,
        counted_in=np.where(counted, NO_STEP, step),
        number=np.where(counted | (step == NO_STEP), index, _count_before(kind, step)),
        start_ns=read_integers(table, "start_ns"),
        duration_ns=read_integers(table, "duration_ns"),
        held_ns=read_integers(table, "held_ns", -1),
        bytes=read_integers(table, "bytes", -1),
        group_size=read_integers(table, "group_size", -1),
    )


def _number_kinds(table: pa.Table) -> tuple[tuple[tuple[str, str], ...], Ints]:
    group, group_of = _encode(table.column("group"))
    name, name_of = _encode(table.column("name"))
    found, first, kind = np.unique(group_of * len(name) + name_of, return_index=True, return_inverse=True)
    order = np.argsort(first)
    kinds = tuple((group[key // len(name)], name[key % len(name)]) for key in found[order].tolist())
    return kinds, np.argsort(order)[kind]


def _encode(column: pa.ChunkedArray) -> tuple[list[str], Ints]:
    """Return the distinct texts of a column, and the index of each row's text. A null counts as the empty text."""
    coded = column.cast(pa.string()).fill_null("").combine_chunks().dictionary_encode()
    return coded.dictionary.to_pylist(), coded.indices.to_numpy().astype(np.int64)


def _count_before(kind: Ints, step: Ints) -> Ints:
    """Return for each call the number of earlier calls of its kind in its step.

    The count restarts in each step, because ranks may begin to record at different steps.
    """
    order = np.lexsort((np.arange(len(kind)), step, kind))
    begins = np.ones(len(kind), np.bool_)
    begins[1:] = (np.diff(kind[order]) != 0) | (np.diff(step[order]) != 0)
    first = np.maximum.accumulate(np.where(begins, np.arange(len(kind)), 0))
    count = np.empty(len(kind), np.int64)
    count[order] = np.arange(len(kind)) - first
    return count


def _is_counted_by_library(kinds: tuple[tuple[str, str], ...], kind: Ints, index: Ints) -> Mask:
    """Return a mask of the calls whose index is a sequence number of the communication library.

    An index that Stepscope counted begins at 0 in each group."""
    group = number_groups(kinds, kind)
    least = np.full(len(kinds), np.iinfo(np.int64).max)
    np.minimum.at(least, group, index)
    return least[group] > 0
