"""Find out whether a job stands still while it records: for how long, and which ranks wait for which."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from collector.format.rank import RankRun
from collector.format.schema.errors import RunError
from collector.format.schema.wording import format_ranks_named
from collector.hangs.blame import Stop, explain_counts, explain_positions, name_group
from collector.hangs.positions import RankPosition, describe_position, describe_stack, list_ranks, read_position

VARIABLE = "PROFILER_HANG_S"
LEAST_S = 30.0
"""Least seconds of a standstill if PROFILER_HANG_S is not set. 0 or less in this variable switches the detection
off."""
_DISPATCH, _OF_RANKS = "/torch/_ops.py:", "/torch/distributed/"
_LONG_WORK = (
    "torch/serialization.py",
    "torch/distributed/checkpoint/",
    "torch/_dynamo/",
    "torch/_inductor/",
    "/triton/",
    "/pdb.py",
    "/bdb.py",
    "/ipykernel/",
)
"""Files whose functions save, compile or wait for a person, and so may take any time."""
_LIBRARIES = ("/torch/", "/site-packages/", "/dist-packages/", "/lib/python")


def read_threshold_ns() -> int:
    try:
        least_s = float(os.environ.get(VARIABLE, ""))
    except ValueError:
        least_s = LEAST_S
    return int((least_s if math.isfinite(least_s) else LEAST_S) * 1e9)


def describe_innermost(text: str) -> str:
    """Return text on the innermost function of a stack, and on the innermost one of the script's own code."""
    lines = text.splitlines()
    if not lines:
        return ""
    own = next((line for line in reversed(lines) if not any(part in line for part in _LIBRARIES)), lines[-1])
    called = "" if own == lines[-1] else f", called from {_cut_folder(own)}"
    return _cut_folder(lines[-1]) + called


def is_long_work(text: str) -> bool:
    """Return whether a stack (one line per frame) is in code that saves, compiles or waits for a person."""
    return any(part in text for part in _LONG_WORK)


def waits_for_ranks(text: str) -> bool:
    """Return whether the innermost frame of a stack, without operator dispatch, is torch's distributed code."""
    inner = next((line for line in reversed(text.splitlines()) if _DISPATCH not in line), "")
    return _OF_RANKS in inner


def _cut_folder(line: str) -> str:
    name, _, place = line.partition(" (")
    return f"{name} ({place.rpartition('/')[2]}" if place else name


MOST_RANKS = 1024
LOOKED_RANKS = 8
"""Number of ranks read first. The others are read only if one stands still: in a standstill, hardly any rank moves."""


@dataclass(frozen=True)
class Standing:
    """A standstill of a job that records. `for_ns` is the longest time for which a rank has stood still: a waiting rank
    if there is a `stop`. `stop` has the ranks that wait and the missing ranks; None if all ranks have the same
    position, or if some have ended.

    `places` are the ranks that stand still, the lowest first. `known` is the number of ranks with a known state. `gone`
    are the ranks whose process has ended.
    """

    for_ns: int
    stop: Stop | None
    places: tuple[RankPosition, ...]
    known: int
    gone: tuple[int, ...] = ()

    @property
    def speaker(self) -> int:
        """The only rank that reports the standstill, so that not all ranks report it."""
        return min(self.stop.waiting) if self.stop is not None else self.places[0].rank


def find_standing(ranks: Sequence[RankRun]) -> Standing | None:
    """Return the standstill of a job; None if the job makes progress or does not record. Unreadable ranks are left out."""
    first = _read_positions(ranks[:LOOKED_RANKS])
    if not any(position.stands for position in first):
        return None
    return classify_positions([*first, *_read_positions(ranks[LOOKED_RANKS:MOST_RANKS])])


def classify_positions(positions: Sequence[RankPosition]) -> Standing | None:
    """Return the standstill of the ranks; None if they do not stand still for long enough.

    If some ranks wait for others, `limit_ns` must have passed. If all ranks have the same position, the longer
    `alone_limit_ns` must have passed, because a checkpoint or an evaluation holds all ranks in the same position, too.
    """
    still = tuple(sorted((one for one in positions if one.stands), key=lambda one: one.rank))
    if not still:
        return None
    longest_ns = max(one.still.for_ns for one in still if one.still is not None)
    gone = [one for one in positions if one.state != "recording"]
    if gone:
        # At the end of a job the first ranks have ended while the last one saves.
        is_broken = any(one.state == "crashed" for one in gone) or all(one.stands_alone for one in still)
        return Standing(longest_ns, None, still, len(positions), list_ranks(gone)) if is_broken else None
    # A rank that last reported before the others began to wait may have joined them since.
    since_ns = min(one.has_begun_ns for one in still)
    heard = [one for one in positions if one.seen_unix_ns >= since_ns]
    stop = (explain_positions(heard) or explain_counts(heard)) if len(heard) > 1 else None
    if stop is not None:
        waits = [one.still.for_ns for one in still if one.still is not None and one.rank in stop.waiting]
        return Standing(max(waits), stop, still, len(heard)) if waits else None
    return Standing(longest_ns, None, still, len(heard)) if all(one.stands_alone for one in positions) else None


def is_standstill(found: Standing) -> bool:
    """Return whether the job really stands: not if a rank that holds it up computes, saves or compiles."""
    if found.stop is not None:
        return all(one.still is not None and not one.still.works for one in found.stop.missing)
    return all(one.in_collective or (one.still is not None and not one.still.works) for one in found.places)


def describe_live_hang(found: Standing, size: str = "") -> str:
    """Return sentences on who waits for whom, for how long and where. `size` is the message size as text."""
    length = f"{found.for_ns / 1e9:,.0f} s"
    stop = found.stop
    if stop is None:
        return _describe_alike(found, length)
    one = stop.missing[0]
    who = format_ranks_named(list_ranks(stop.missing))
    verb = "has" if len(stop.missing) == 1 else "have"
    waits = "1 rank waits" if len(stop.waiting) == 1 else f"{len(stop.waiting):,} ranks wait"
    name = stop.name or "collective"
    about = (f" ({size})" if size and stop.name else "") + name_group(stop)
    if stop.ahead is not None:
        calls = (
            f"{who.capitalize()} {verb} called {stop.least:,} collectives{about}, {len(stop.waiting):,} of the others"
        )
        text = f"{calls} {stop.ahead:,}; nothing has happened there for {length}"
    elif stop.number is None:
        text = f"{waits} in the backward for the gradients of {who}, for {length}"
    else:
        text = f"{who.capitalize()} {verb} not entered {name} {stop.number:,}{about} for {length}; {waits} for it"
    if stop.elsewhere:
        more = "1 more rank waits" if stop.elsewhere == 1 else f"{stop.elsewhere:,} more ranks wait"
        text += f", {more} in other collectives"
    return f"{text}. Rank {one.rank} was last seen {describe_position(one)}{describe_stack(one)}."


def _describe_alike(found: Standing, length: str) -> str:
    one = found.places[0]
    where = f"{describe_position(one)}{describe_stack(one)}"
    if found.gone:
        ended = f"{format_ranks_named(found.gone).capitalize()} {'has' if len(found.gone) == 1 else 'have'} ended"
        waits = "1 rank has" if len(found.places) == 1 else f"{len(found.places):,} ranks have"
        return f"{ended}; {waits} stood still for {length}, rank {one.rank} {where}."
    if found.known == 1:
        return f"No step for {length}: the training thread stands still {where}."
    inside = {(position.group, position.number) for position in found.places if position.in_collective}
    if len(inside) == 1 and all(position.in_collective for position in found.places):
        name = one.name or "collective"
        return f"All {found.known:,} ranks have been in {name} {one.number:,} for {length}: look at the network."
    return f"No step for {length}: all {found.known:,} ranks stand still, rank {one.rank} {where}."


def _read_positions(ranks: Iterable[RankRun]) -> list[RankPosition]:
    found = (_read_rank(rank) for rank in ranks)
    return [position for position in found if position is not None]


def _read_rank(rank: RankRun) -> RankPosition | None:
    try:
        manifest, state = rank.manifest, rank.state
    except RunError:
        return None
    standing = manifest.facts.get("standing") if state == "recording" else None
    # A rank that reports no position has called no collective yet, as far as is known.
    told = manifest.facts.get("moment") or standing or {"step": 1}
    position = read_position(rank.rank, told, manifest.heartbeat_unix_ns, standing)
    return replace(position, state=state) if position is not None else None
