"""Read standstills from a rank's facts, and mark the steps that they distort. After each of them, the job went on.

A standstill is detected while it lasts (`collector.hangs.live`), because a long step alone does not distinguish a hang
from an evaluation or a checkpoint. Each rank decides by itself, so only some ranks note a standstill that is barely
over the limit. A long step of a rank without a note is therefore also marked, if another rank noted a standstill at
that time. Otherwise only the averages of the ranks without a note would include the long step.
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
"""If this many silences of a run last at least half as long as a standstill, it is regular work and not kept."""
_LONGEST_STACK = 400
MOST_LOOKED_AT = 64
"""The greatest number of other ranks whose manifests are read: most ranks note a standstill of the job."""
LEAST_NS = 10**9
LONG_TIMES = 10
"""Other ranks' manifests are read only if a step takes at least this many medians, and at least LEAST_NS."""
_OF_STANDSTILL_FRAC = 0.5
"""A step near another rank's standstill is marked only if it is at least this fraction as long: the standstill may
extend over two steps."""


@dataclass(frozen=True)
class Standstill:
    """One standstill of one rank, in `step`, of `for_ns`. `phase` is where the training thread stood, or else `after`
    the phase before; "" if unknown. `stack` is its Python stack, "" if none was read. `missing` are the ranks for which
    others waited, maybe also this rank."""

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
        return {name: value for name, value in asdict(self).items() if name != "rank"} | {"missing": [*self.missing]}


def read_standstills(rank: int, facts: Mapping[str, Any]) -> tuple[Standstill, ...]:
    """Read the standstills in a manifest's facts; malformed entries are skipped."""
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
    """Return `steps` with metadata on the rank's `own` standstills, and on long steps during those of other ranks."""
    told = {one.step: one.for_ns for one in own}
    for step, for_ns in _find_spoilt(steps, run_path, rank).items():
        told.setdefault(step, for_ns)
    return mark_stood(steps, told) if told else steps


def _find_spoilt(steps: pa.Table, run_path: Path, rank: int) -> dict[int, int]:
    """Return the long steps during standstills of other ranks, as a map from the step's number to its duration in ns."""
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
    except (OSError, ValueError, RecursionError):  # the page that shows that rank reports the error
        return ()
    facts = told.get("facts") if isinstance(told, dict) else None
    return read_standstills(rank, facts) if isinstance(facts, dict) else ()
