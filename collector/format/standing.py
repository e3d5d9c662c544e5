"""Where the ranks of a job are: who waits in a collective that another has not entered, while it records or at its end.

What a rank tells of itself lies in the facts `moment` (where its training thread is) and `standing` (that nothing has
happened there for a while) of its manifest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from collector.format.phases import PHASE_LABELS
from collector.format.rank import RankRun
from collector.format.schema.errors import RunError
from collector.format.schema.manifest import RunState
from collector.format.schema.wording import format_ranks_named

MOST_RANKS = 1024
LOOKED_RANKS = 8
"""Where a job stands still hardly any rank moves: others are only read if one of so many stands."""
_BACKWARD = "backward"
_IN_BACKWARD = "DDP"
"""In the name of a reduction that the backward waits for."""
_LONGEST_STACK = 400


@dataclass(frozen=True)
class Still:
    """That nothing has happened on a training thread for so long, and from how long on that counts.

    `limit_ns` counts where other ranks are elsewhere, `alone_limit_ns` where nothing tells this from long work.
    """

    for_ns: int
    limit_ns: int
    alone_limit_ns: int
    stack: str = ""
    works: bool = False
    """That the process computes, saves or compiles meanwhile."""


@dataclass(frozen=True)
class Place:
    """Where one rank was. `ended` counts the collectives that it had left, `name` and `bytes` are of the next: the one
    that it had begun, or (not `is_begun`) that of the step before at this place. `seen_unix_ns` is when it said so;
    `still` is None for a thread that gets on."""

    rank: int
    step: int
    phase: str
    after: str
    in_collective: bool
    ended: int
    name: str
    bytes: int | None
    is_begun: bool
    seen_unix_ns: int = 0
    still: Still | None = None
    state: RunState = "recording"

    @property
    def has_begun_ns(self) -> int:
        """Since when it has stood still, in Unix ns."""
        return self.seen_unix_ns - (self.still.for_ns if self.still else 0)

    @property
    def stands(self) -> bool:
        return self.still is not None and self.still.for_ns >= self.still.limit_ns

    @property
    def stands_alone(self) -> bool:
        return self.still is not None and self.still.for_ns >= self.still.alone_limit_ns


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
    ahead: int | None = None
    """How many collectives the waiting ranks have called, where only the numbers tell who is behind."""


@dataclass(frozen=True)
class Standing:
    """A job that records and stands still. `stop` says who waits for whom, None where the ranks do not differ.

    `places` are the ranks that stand still, the lowest first; `known` is how many ranks were heard, `gone` are those
    whose process has ended.
    """

    for_ns: int
    stop: Stop | None
    places: tuple[Place, ...]
    known: int
    gone: tuple[int, ...] = ()

    @property
    def speaker(self) -> int:
        """The one rank that says it where all of them see it."""
        return min(self.stop.waiting) if self.stop is not None else self.places[0].rank


def find_standing(ranks: Sequence[RankRun]) -> Standing | None:
    """Return how a job stands still, None for one that gets on or does not record. A rank that cannot be read is left out."""
    first = _read_places(ranks[:LOOKED_RANKS])
    if not any(place.stands for place in first):
        return None
    return judge_places([*first, *_read_places(ranks[LOOKED_RANKS:MOST_RANKS])])


def judge_places(places: Sequence[Place]) -> Standing | None:
    """Return how ranks stand still.

    A checkpoint or an evaluation takes long on all ranks alike, or makes none of the others wait for longer than the run
    has seen; so ranks that differ count from `limit_ns` on, and ranks that do not only from `alone_limit_ns` on.
    """
    still = tuple(sorted((place for place in places if place.stands), key=lambda place: place.rank))
    if not still:
        return None
    longest_ns = max(place.still.for_ns for place in still if place.still is not None)
    gone = [place for place in places if place.state != "recording"]
    if gone:
        # At the end of a job the first ranks have ended while the last one saves.
        is_broken = any(place.state == "crashed" for place in gone) or all(place.stands_alone for place in still)
        return Standing(longest_ns, None, still, len(places), _numbers(gone)) if is_broken else None
    # A rank that was last heard before the others began to wait may be with them by now.
    since_ns = min(place.has_begun_ns for place in still)
    heard = [place for place in places if place.seen_unix_ns >= since_ns]
    stop = (explain_places(heard) or _explain_counts(heard)) if len(heard) > 1 else None
    if stop is not None:
        waits = [place.still.for_ns for place in still if place.still is not None and place.rank in stop.waiting]
        return Standing(max(waits), stop, still, len(heard)) if waits else None
    return Standing(longest_ns, None, still, len(heard)) if all(place.stands_alone for place in places) else None


def is_standstill(found: Standing) -> bool:
    """Say whether nothing is done meanwhile: one rank may evaluate, save or compile while the others wait for it."""
    if found.stop is not None:
        return all(place.still is not None and not place.still.works for place in found.stop.missing)
    return all(place.in_collective or (place.still is not None and not place.still.works) for place in found.places)


def read_place(rank: int, told: Any, seen_unix_ns: int = 0, standing: Any = None) -> Place | None:
    """Read what a manifest tells of where its rank is; None where that is nothing."""
    still = _read_still(standing)
    if not isinstance(told, dict):
        told = standing if still is not None else None
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
        seen_unix_ns=seen_unix_ns,
        still=still,
    )


def explain_places(places: Sequence[Place]) -> Stop | None:
    """Return which ranks wait for which, None where none waits in a collective that another did not enter."""
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


def say_standing(found: Standing, size: str = "") -> str:
    """Say who waits for whom, for how long, and where the one is; `size` is that of the message, as the reader has it."""
    length = f"{found.for_ns / 1e9:,.0f} s"
    stop = found.stop
    if stop is None:
        return _say_alike(found, length)
    one = stop.missing[0]
    who = format_ranks_named([place.rank for place in stop.missing])
    verb = "has" if len(stop.missing) == 1 else "have"
    waits = "1 rank waits" if len(stop.waiting) == 1 else f"{len(stop.waiting):,} ranks wait"
    name = stop.name or "collective"
    about = f" ({size})" if size and stop.name else ""
    if stop.ahead is not None:
        calls = f"{who.capitalize()} {verb} called {one.ended:,} collectives, {len(stop.waiting):,} of the others"
        text = f"{calls} {stop.ahead:,}; nothing has happened there for {length}"
    elif stop.number is None:
        text = f"{waits} in the backward for the gradients of {who}, for {length}"
    else:
        text = f"{who.capitalize()} {verb} not entered {name} {stop.number:,}{about} for {length}; {waits} for it"
    return f"{text}. Rank {one.rank} was last seen {describe_place(one)}{say_stack(one)}."


def _say_alike(found: Standing, length: str) -> str:
    one = found.places[0]
    where = f"{describe_place(one)}{say_stack(one)}"
    if found.gone:
        ended = f"{format_ranks_named(found.gone).capitalize()} {'has' if len(found.gone) == 1 else 'have'} ended"
        waits = "1 rank has" if len(found.places) == 1 else f"{len(found.places):,} ranks have"
        return f"{ended}; {waits} stood still for {length}, rank {one.rank} {where}."
    if found.known == 1:
        return f"No step for {length}: the training thread stands still {where}."
    inside = {place.ended for place in found.places if place.in_collective}
    if len(inside) == 1 and all(place.in_collective for place in found.places):
        name = one.name or "collective"
        return f"All {found.known:,} ranks have been in {name} {one.ended + 1:,} for {length}: look at the network."
    return f"No step for {length}: all {found.known:,} ranks stand still, rank {one.rank} {where}."


def say_stack(place: Place) -> str:
    """Say at which function a rank stood, as the end of a sentence, "" where that is not known."""
    return f", at {place.still.stack}" if place.still is not None and place.still.stack else ""


def _explain_counts(places: Sequence[Place]) -> Stop | None:
    """Return the ranks that called fewer collectives than the most.

    NCCL's calls return at once: whoever waits for one stands in another call, such as a copy to the host.
    """
    most, least = max(place.ended for place in places), min(place.ended for place in places)
    missing = [place for place in places if place.ended == least]
    ahead = [place for place in places if place.ended == most]
    if most == least or len(missing) > len(places) // 2:
        return None
    return Stop(None, "", None, _numbers(ahead), tuple(missing), ahead=most)


def _read_places(ranks: Iterable[RankRun]) -> list[Place]:
    found = (_read_rank(rank) for rank in ranks)
    return [place for place in found if place is not None]


def _read_rank(rank: RankRun) -> Place | None:
    try:
        manifest, state = rank.manifest, rank.state
    except RunError:
        return None
    standing = manifest.facts.get("standing") if state == "recording" else None
    # A rank that tells of no place has called no collective yet, as far as it was heard.
    told = manifest.facts.get("moment") or standing or {"step": 1}
    place = read_place(rank.rank, told, manifest.heartbeat_unix_ns, standing)
    return replace(place, state=state) if place is not None else None


def _read_still(told: Any) -> Still | None:
    if not isinstance(told, dict):
        return None
    times = [_number(told.get(name)) for name in ("for_ns", "limit_ns", "alone_limit_ns")]
    if None in times:
        return None
    for_ns, limit_ns, alone_ns = (time or 0 for time in times)
    stack = told.get("stack")
    words = stack[:_LONGEST_STACK] if isinstance(stack, str) else ""
    return Still(for_ns, limit_ns, alone_ns, words, told.get("works") is True)


def _numbers(places: Sequence[Place]) -> tuple[int, ...]:
    return tuple(place.rank for place in places)


def _phase(value: Any) -> str:
    return value if isinstance(value, str) and value in PHASE_LABELS else ""


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62 else None
