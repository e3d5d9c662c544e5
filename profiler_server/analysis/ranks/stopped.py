"""Where the ranks of a recorded job were when it hung or was killed: who waits in a collective that another never entered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from collector.format.phases import PHASE_LABELS
from profiler_server.analysis.ranks.ranks import RankSummary

_BACKWARD = "backward"
_IN_BACKWARD = "DDP"
"""In the name of a reduction that the backward waits for."""


@dataclass(frozen=True)
class Place:
    """Where one rank was. `ended` counts the collectives that it had left, `name` and `bytes` are of the next: the one
    that it had begun, or (not `is_begun`) that of the step before at this place."""

    rank: int
    step: int
    phase: str
    after: str
    in_collective: bool
    ended: int
    name: str
    bytes: int | None
    is_begun: bool


@dataclass(frozen=True)
class Stop:
    """`missing` are ranks that the `waiting` ones wait for. `number` is the collective that those never entered, counted
    from 1; None where they wait at the end of a backward, in a reduction that is not seen by itself."""

    number: int | None
    name: str
    bytes: int | None
    waiting: tuple[int, ...]
    missing: tuple[Place, ...]
    is_begun: bool = False


def find_stop(ranks: Sequence[RankSummary]) -> Stop | None:
    """Return who waited for whom at the end of a job that did not end by itself, None where nobody did."""
    crashed = [rank for rank in ranks if rank.state == "crashed"]
    places = [place for rank in crashed if (place := _read_place(rank.rank, rank.moment)) is not None]
    return _explain(places) if len(places) > 1 else None


def _read_place(rank: int, told: Any) -> Place | None:
    if not isinstance(told, dict):
        return None
    following = told.get("next")
    following = following if isinstance(following, dict) else {}
    return Place(
        rank=rank,
        step=_number(told.get("step")) or 0,
        phase=_phase(told.get("phase")),
        after=_phase(told.get("after")),
        in_collective=told.get("in_collective") is True,
        ended=_number(told.get("ended")) or 0,
        name=str(following.get("name", ""))[:100],
        bytes=_number(following.get("bytes")),
        is_begun=following.get("is_begun") is True,
    )


def _explain(places: Sequence[Place]) -> Stop | None:
    inside = [place for place in places if place.in_collective]
    if inside:
        number = Counter(place.ended for place in inside).most_common(1)[0][0]
        waiting = [place for place in inside if place.ended == number]
        missing = [place for place in places if not place.in_collective and place.ended <= number]
        one = max(waiting, key=lambda place: place.is_begun)
        if not missing:
            return None
        return Stop(number + 1, one.name, one.bytes, _numbers(waiting), tuple(missing), one.is_begun)
    if not any(_IN_BACKWARD in place.name for place in places):
        return None
    step = max(place.step for place in places)
    waiting = [place for place in places if place.phase == _BACKWARD and place.step == step]
    missing = [place for place in places if place not in waiting]
    return Stop(None, "", None, _numbers(waiting), tuple(missing)) if waiting and missing else None


def describe_place(place: Place) -> str:
    """Say what a rank was doing, as the end of a sentence."""
    if place.phase:
        return f"in {PHASE_LABELS[place.phase].lower()} of step {place.step:,}"
    if place.after:
        return f"after {PHASE_LABELS[place.after].lower()} of step {place.step:,}"
    return f"before step {place.step:,}"


def _numbers(places: Sequence[Place]) -> tuple[int, ...]:
    return tuple(place.rank for place in places)


def _phase(value: Any) -> str:
    return value if isinstance(value, str) and value in PHASE_LABELS else ""


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62 else None
