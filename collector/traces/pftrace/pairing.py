"""Find the end of each slice. An end names its track only, and files have them in two orders.

A program that writes while it runs has the events of a track in the order of time: an end closes the slice that began
last. A program that writes afterwards has slices in any order: each with its end behind it, or many begins followed by
their ends in the same order. Such a group is known by its tracks, and by times that go backwards.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from collector.format.intervals import Ints, Mask
from collector.traces.kineto.scratch import Scratch

PLAIN, BEGIN, END = 0, 1, 2
"""The kinds of rows: events that are whole, begins and ends of slices."""


@dataclass(frozen=True)
class Rows:
    """The events of a file in its order: time in ns, number of the track, kind, number of the writer."""

    time: Ints
    track: Ints
    kind: Ints
    sequence: Ints


def pair_slices(rows: Rows, scratch: Scratch) -> Ints:
    """Return for each begin the row of its end, and for each end that of its begin; -1 for a row without the other."""
    partner = scratch.array(len(rows.kind), -1)
    halves = scratch.where(rows.kind != PLAIN)
    if len(halves):
        _pair_groups(rows, halves, partner)
        _pair_in_time(rows, halves[partner[halves] < 0], partner)
    return partner


def _pair_groups(rows: Rows, halves: Ints, partner: Ints) -> None:
    """Pair the groups of begins that are followed by as many ends of the same tracks, by writers that write afterwards."""
    kind, sequence = rows.kind[halves], rows.sequence[halves]
    edges = np.flatnonzero((np.diff(kind) != 0) | (np.diff(sequence) != 0)) + 1
    starts = np.concatenate(([0], edges))
    sizes = np.diff(np.append(starts, len(halves)))
    groups = np.flatnonzero(
        (kind[starts[:-1]] == BEGIN)
        & (kind[starts[1:]] == END)
        & (sequence[starts[:-1]] == sequence[starts[1:]])
        & (sizes[:-1] == sizes[1:])
    )
    single = halves[starts[groups[sizes[groups] == 1]]]
    ends = halves[starts[groups[sizes[groups] == 1] + 1]]
    fits = (rows.track[single] == rows.track[ends]) & (rows.time[single] <= rows.time[ends])
    _join(partner, single[fits], ends[fits])
    found: list[tuple[int, Ints, Ints]] = []
    late: set[int] = set()
    for start, size in zip(starts[groups].tolist(), sizes[groups].tolist(), strict=True):
        begins, ends = halves[start : start + size], halves[start + size : start + 2 * size]
        if size > 1 and (rows.track[begins] == rows.track[ends]).all() and (rows.time[begins] <= rows.time[ends]).all():
            writer = int(sequence[start])
            found.append((writer, begins, ends))
            if _goes_back(rows, halves[start : start + 2 * size]):
                late.add(writer)
    for writer, begins, ends in found:
        if writer in late:
            _join(partner, begins, ends)


def _goes_back(rows: Rows, group: Ints) -> bool:
    """Return whether the time of a track goes backwards within a group."""
    order = group[np.argsort(rows.track[group], kind="stable")]
    same = np.diff(rows.track[order]) == 0
    return bool((same & (np.diff(rows.time[order]) < 0)).any())


def _pair_in_time(rows: Rows, halves: Ints, partner: Ints) -> None:
    """Pair the rest: the end of a track closes the slice that began last."""
    order = halves[np.lexsort((rows.time[halves], rows.track[halves]))]
    is_end: Mask = rows.kind[order] == END
    opened: list[int] = []
    track = -1
    for first in range(0, len(order), 1 << 16):
        part = slice(first, first + (1 << 16))
        here = zip(order[part].tolist(), rows.track[order[part]].tolist(), is_end[part].tolist(), strict=True)
        for row, place, ends in here:
            if place != track:
                track, opened = place, []
            if not ends:
                opened.append(row)
            elif opened:
                partner[row] = opened.pop()
                partner[partner[row]] = row


def _join(partner: Ints, begins: Ints, ends: Ints) -> None:
    partner[begins], partner[ends] = ends, begins
