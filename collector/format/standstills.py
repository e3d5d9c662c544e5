"""Standstills that a job got over, as the facts of a rank tell them, and the steps that they spoil.

They are judged while they last (`collector.hangs.live`): a long step alone does not tell a hang from an evaluation or a
checkpoint. Ranks judge each by itself, and one that is hardly over the limit is noted by some and not by others: a long
step is spoilt, too, where other ranks noted a standstill at that time. Else it would be in the averages of these alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from collector.format.keeping import keep
from collector.format.phases import read_phase
from collector.format.schema import layout
from collector.format.schema.reading import read_count, read_small_text
from collector.format.steps import mark_stood, read_integers

FACT = "standstills"
MOST_KEPT = 20
REGULAR_TIMES = 3
"""A run that was silent so often for as long, or half as long, works that way: none of it is a standstill."""
_LONGEST_STACK = 400
MOST_LOOKED_AT = 64
"""Other ranks whose manifests are read, the first ones: where a job stands still, all of its ranks do."""
LEAST_NS = 10**9
LONG_TIMES = 10
"""Others are only asked about steps that are so long, and so many times the median."""
_OF_STANDSTILL_FRAC = 0.5
"""A step that is the longest near a standstill holds at least so much of it: it may have begun or ended in the next."""


@dataclass(frozen=True)
class Standstill:
    """One of one rank. `step` was open then; `missing` are the ranks that others waited for, of which it may be one."""

    rank: int
    step: int
    for_ns: int
    ended_unix_ns: int
    phase: str = ""
    after: str = ""
    stack: str = ""
    missing: tuple[int, ...] = ()

    @property
    def begun_unix_ns(self) -> int:
        return self.ended_unix_ns - self.for_ns

    def write(self) -> dict[str, Any]:
        """Return it as a manifest keeps it."""
        return {name: value for name, value in asdict(self).items() if name != "rank"} | {"missing": [*self.missing]}


def read_standstills(rank: int, facts: Mapping[str, Any]) -> tuple[Standstill, ...]:
    """Read what a manifest tells of them; what is no standstill is left out."""
    told = facts.get(FACT)
    found = (_read_entry(rank, entry) for entry in (told[:MOST_KEPT] if isinstance(told, list) else ()))
    return tuple(one for one in found if one is not None)


def _read_entry(rank: int, told: Any) -> Standstill | None:
    if not isinstance(told, dict):
        return None
    step, for_ns, ended = (read_count(told.get(name)) for name in ("step", "for_ns", "ended_unix_ns"))
    if step is None or not for_ns or ended is None:
        return None
    stack, missing = told.get("stack"), told.get("missing")
    numbers = [read_count(value) for value in missing] if isinstance(missing, list) else []
    return Standstill(
        rank=rank,
        step=step,
        for_ns=for_ns,
        ended_unix_ns=ended,
        phase=read_phase(told.get("phase")),
        after=read_phase(told.get("after")),
        stack=stack[:_LONGEST_STACK] if isinstance(stack, str) else "",
        missing=tuple(number for number in numbers if number is not None),
    )


def mark_standstills(steps: pa.Table, run_path: Path, rank: int, own: tuple[Standstill, ...]) -> pa.Table:
    """Return rows of a `steps` table that know in which of them the job stood still."""
    told = {one.step: one.for_ns for one in own}
    for step, for_ns in _find_spoilt(steps, run_path, rank).items():
        told.setdefault(step, for_ns)
    return mark_stood(steps, told) if told else steps


def _find_spoilt(steps: pa.Table, run_path: Path, rank: int) -> dict[int, int]:
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
    return [one for other in ranks for one in _read_cached(run_path, other)]


def _read_cached(run_path: Path, rank: int) -> tuple[Standstill, ...]:
    file = layout.rank_file(run_path, rank)
    try:
        found = file.stat()
    except OSError:
        return ()
    return keep(("standstills", str(file)), (found.st_mtime_ns, found.st_size), lambda: _read(file, rank))


def _read(file: Path, rank: int) -> tuple[Standstill, ...]:
    try:
        told = json.loads(read_small_text(file))
    except (OSError, ValueError, RecursionError):  # whoever shows that rank says what is wrong with it
        return ()
    facts = told.get("facts") if isinstance(told, dict) else None
    return read_standstills(rank, facts) if isinstance(facts, dict) else ()
