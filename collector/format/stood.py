"""The steps of a rank in which its job stood still: what it noted itself, and what the other ranks noted of the same time.

Ranks judge a standstill each by itself. One that is hardly over the limit is noted by some and not by others, and would be
in the averages of these alone.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa

from collector.format.schema import layout
from collector.format.schema.reading import read_small_text
from collector.format.standstills import Standstill, read_standstills
from collector.format.steps import mark_stood, read_integers

MOST_LOOKED_AT = 64
"""Other ranks whose manifests are read, the first ones: where a job stands still, all of its ranks do."""
LEAST_NS = 10**9
LONG_TIMES = 10
"""Others are only asked about steps that are so long, and so many times the median."""
_OF_STANDSTILL_FRAC = 0.5
"""A step that is the longest near a standstill holds at least so much of it: it may have begun or ended in the next."""


def mark_standstills(steps: pa.Table, run_path: Path, rank: int, own: tuple[Standstill, ...]) -> pa.Table:
    """Return rows of a `steps` table that know in which of them the job stood still."""
    told = {one.step: one.for_ns for one in own}
    for step, for_ns in find_spoilt(steps, run_path, rank).items():
        told.setdefault(step, for_ns)
    return mark_stood(steps, told) if told else steps


def find_spoilt(steps: pa.Table, run_path: Path, rank: int) -> dict[int, int]:
    """Return the numbers of long steps in which other ranks noted a standstill, and how long each is at least."""
    if not {"step", "duration_ns"} <= set(steps.column_names) or not steps.num_rows:
        return {}
    number, length = read_integers(steps, "step", -1), read_integers(steps, "duration_ns")
    is_long = length >= max(LEAST_NS, LONG_TIMES * float(np.median(length)))
    if not is_long.any():
        return {}
    found: dict[int, int] = {}
    for one in _read_others(run_path, rank):
        near = is_long & (np.abs(number - one.step) <= 1) & (length >= _OF_STANDSTILL_FRAC * one.for_ns)
        if near.any():
            at = int(np.flatnonzero(near)[np.argmax(length[near])])
            found[int(number[at])] = int(length[at])
    return found


def _read_others(run_path: Path, rank: int) -> list[Standstill]:
    try:
        ranks = [other for other in layout.find_ranks(run_path)[: MOST_LOOKED_AT + 1] if other != rank]
    except OSError:
        return []
    return [one for other in ranks for one in _recall(run_path, other)]


def _recall(run_path: Path, rank: int) -> tuple[Standstill, ...]:
    file = layout.rank_file(run_path, rank)
    try:
        found = file.stat()
    except OSError:
        return ()
    return _read(file, rank, found.st_mtime_ns, found.st_size)


@lru_cache(1024)
def _read(file: Path, rank: int, _changed_ns: int, _size: int) -> tuple[Standstill, ...]:
    try:
        told = json.loads(read_small_text(file))
    except (OSError, ValueError, RecursionError):  # whoever shows that rank says what is wrong with it
        return ()
    facts = told.get("facts") if isinstance(told, dict) else None
    return read_standstills(rank, facts) if isinstance(facts, dict) else ()
