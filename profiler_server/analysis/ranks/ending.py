"""The end of a job, or its standstill: one answer from the ends of all its ranks, for every page and report."""

from __future__ import annotations

import contextlib
import re
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from collector.format.rank import RankRun
from collector.format.run import Run
from collector.format.schema.errors import RunError
from collector.format.schema.manifest import RankManifest, RunState
from collector.format.schema.reading import read_count
from collector.hangs.blame import Stop, explain_counts, explain_positions
from collector.hangs.live import find_standing
from collector.hangs.positions import RankPosition, read_position
from profiler_server.analysis.ranks.divergence import find_divergence
from profiler_server.analysis.ranks.ends import (
    CutOff,
    Death,
    End,
    Killed,
    LeftOut,
    Mismatch,
    OutOfMemory,
    Raised,
    Severed,
)
from profiler_server.analysis.ranks.hang import find_hang
from profiler_server.analysis.ranks.shortage import Shortage, read_shortage
from profiler_server.derive.derived import derived
from profiler_server.diagnosis.limits.stragglers import SETTLES_S, STILL_NS
from profiler_server.store.headline import BY_HAND, read_ended_by, read_error

MOST_RANKS = 1024
_LOST = re.compile(
    r"Dist\w*Error\b|SignalException\b|"
    r"RuntimeError: (.*(\bgloo\b|nccl|by peer\b|remote worker|watchdog)|(broken pipe|socket timeout)$)",
    re.IGNORECASE,
)
"""Errors that PyTorch raises on a rank whose peer has gone. A script's own TimeoutError does not match."""
_FROM_OUTSIDE = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
"""Signals from launchers and people. Other signals come from a fault of the rank or from the system."""


@dataclass(frozen=True)
class RankEnd:
    """The end of one rank. `by` is the exception that ended it, "" for none. `death` is how its process ended while it
    recorded.

    Decisions use `by`; `shown` is the redacted form of `by` for display. `ended_unix_ns` and `died_unix_ns` are the
    times at which its recording and its process ended. `place` is the rank's last position in the training, None if
    unknown, and `since_unix_ns` is the time since which it was there. `settles`: the process ended so recently that
    the reason may still be written. `shortage` is what the error tells, if it is one on memory.
    """

    rank: int
    state: RunState
    by: str
    shown: str
    ended_unix_ns: int
    death: Death
    died_unix_ns: int | None
    place: RankPosition | None
    since_unix_ns: int | None
    settles: bool
    shortage: Shortage | None

    @property
    def is_dead(self) -> bool:
        return self.state == "crashed" and not self.by

    @property
    def lost_connection(self) -> bool:
        return bool(_LOST.match(self.by))


def find_end(run: Run) -> End | None:
    """Return how a job ended too early, or where it stands still; None if neither happened, or if this is unknown."""
    if run.manifest.is_imported:
        return find_hang(run)
    ranks = [run.read_rank(number) for number in run.ranks[:MOST_RANKS]]
    if (standing := find_standing(ranks)) is not None:
        return standing
    ends = tuple(end for rank in ranks if (end := _read_end(rank, run.manifest.epoch_unix_ns)) is not None)
    if not any(end.by or end.is_dead for end in ends) or any(end.settles for end in ends):
        return None
    return _judge(run, ends)


def count_ended(run: Run) -> int:
    """Return how many steps of a job have ended: the largest number over its first eight ranks; 0 for a job without
    steps."""
    return max((_count_steps(run.read_rank(number)) for number in run.ranks[:8]), default=0)


@derived(reads=lambda run, ends: (run, str(ends)))
def _judge(run: Run, ends: tuple[RankEnd, ...]) -> End | None:
    by_rank = {number: run.read_rank(number) for number in run.ranks[:MOST_RANKS]}
    is_alone = run.manifest.world_size == 1
    dead = [end for end in ends if end.is_dead]
    lost = [end for end in ends if end.lost_connection and not is_alone]
    if (parted := _find_parted([*by_rank.values()], ends)) is not None:
        return parted
    own = [end for end in ends if end.by and end not in lost]
    if own:
        first = min(own, key=lambda end: end.ended_unix_ns)
        alike = tuple(end.rank for end in own if end.by == first.by or (end.shortage and first.shortage))
        if is_alone and first.by.startswith(BY_HAND):
            return None
        steps, ranks = _count_steps(by_rank[first.rank]), () if is_alone else alike
        if first.shortage is not None:
            rank = None if is_alone else first.rank
            return OutOfMemory(ranks, first.shown, steps, len(lost), rank, first.shortage)
        return Raised(ranks, first.shown, steps, len(lost))
    stop = _find_stop([*dead, *lost])
    first_dead = _find_first_dead([end for end in dead if not _slept(end, lost)], bool(lost))
    if first_dead is not None and (stop is None or first_dead.rank not in stop.waiting):
        others = len(dead) - 1
        return Killed(first_dead.death, _count_steps(by_rank[first_dead.rank]), len(lost), others)
    if stop is not None:
        return stop
    if dead and not _is_tidied(dead, lost):
        signals = {end.death.signal for end in dead}
        ended = tuple(end.rank for end in dead)
        return CutOff(
            () if is_alone else ended, signals.pop() if len(signals) == 1 else None, _count_steps(by_rank[ended[0]])
        )
    if (behind := _find_behind(dead, lost)) is not None:
        return behind
    first = min(lost, key=lambda end: end.ended_unix_ns)
    return Severed(tuple(end.rank for end in lost), first.shown, _count_steps(by_rank[first.rank]))


def _find_parted(ranks: Sequence[RankRun], ends: Sequence[RankEnd]) -> LeftOut | Mismatch | None:
    if len(ends) < 2 or any(rank.manifest.events_lost for rank in ranks if rank.rank in {end.rank for end in ends}):
        return None
    titles = {group.name: group.title for end in ends if end.place is not None for group, _ in end.place.counts}
    then = tuple(end.death for end in ends if end.is_dead and end.death.signal not in (None, *_FROM_OUTSIDE))
    found = find_divergence(ranks, titles)
    return replace(found, then=then) if found is not None else None


def _find_first_dead(dead: Sequence[RankEnd], others_lost_it: bool) -> RankEnd | None:
    """Return the rank whose death ended the other ranks; None if several ranks may have died first. `others_lost_it`:
    other ranks lost their connection to a rank.
    """
    own = [end for end in dead if end.death.signal not in _FROM_OUTSIDE]
    if len(own) == 1:
        return own[0] if len(dead) > 1 or others_lost_it else None
    signals = {end.death.signal for end in own}
    is_known = own and None not in signals and len(signals) == len(own)
    return min(own, key=lambda end: end.died_unix_ns or 0) if is_known else None


def _is_tidied(dead: Sequence[RankEnd], lost: Sequence[RankEnd]) -> bool:
    """Return whether ranks lost a connection before the first death. Then a launcher ended the ranks in `dead`."""
    died = [end.died_unix_ns for end in dead if end.died_unix_ns is not None]
    return bool(lost) and len(died) == len(dead) and min(end.ended_unix_ns for end in lost) < min(died)


def _slept(dead: RankEnd, lost: Sequence[RankEnd]) -> bool:
    """Return whether the rank `dead` stood still before the communication of other ranks failed, and ended later."""
    stood = dead.place is not None and dead.place.still is not None and dead.place.still.for_ns >= STILL_NS
    return stood and _is_tidied([dead], lost)


def _find_behind(dead: Sequence[RankEnd], lost: Sequence[RankEnd]) -> Stop | None:
    """Return which ranks had not entered a collective when it failed on the other ranks; None if this is unknown, or if
    any of those ranks has not died.
    """
    behind = explain_counts([end.place for end in (*dead, *lost) if end.place is not None])
    if behind is None or not {place.rank for place in behind.missing} <= {end.rank for end in dead}:
        return None
    return replace(behind, number=behind.least + 1, ahead=None)


def _find_stop(ended: Sequence[RankEnd]) -> Stop | None:
    """Return which ranks waited for which, if ranks ended without an error of their own; None if none waited long."""
    places = [end.place for end in ended if end.place is not None]
    stop = explain_positions(places) if len(places) > 1 else None
    if stop is None:
        return None
    waited = [
        end.died_unix_ns - end.since_unix_ns
        for end in ended
        if end.rank in stop.waiting and end.died_unix_ns is not None and end.since_unix_ns is not None
    ]
    return stop if max(waited, default=STILL_NS) >= STILL_NS else None


def _read_end(rank: RankRun, epoch_unix_ns: int) -> RankEnd | None:
    try:
        manifest, state = rank.manifest, rank.state
        by = read_ended_by(rank)
    except RunError:
        return None  # the page of that rank says what is wrong with it
    facts = manifest.facts
    moment, told = facts.get("moment"), facts.get("process_end")
    told = told if isinstance(told, dict) else {}
    since = read_count(moment.get("since_ns")) if isinstance(moment, dict) else None
    return RankEnd(
        rank=rank.rank,
        state=state,
        by=by,
        shown=read_error(manifest),
        ended_unix_ns=manifest.ended_unix_ns or 1 << 62,
        death=Death(rank.rank, read_count(told.get("signal")), read_count(told.get("exit_code"))),
        died_unix_ns=read_count(told.get("at_unix_ns")),
        place=read_position(rank.rank, moment, standing=facts.get("standing")),
        since_unix_ns=None if since is None else epoch_unix_ns + since,
        settles=_settles(manifest, state),
        shortage=read_shortage(facts) if by else None,
    )


def _settles(manifest: RankManifest, state: RunState) -> bool:
    age_s = time.time() - manifest.heartbeat_unix_ns / 1e9
    return state == "crashed" and manifest.ended_unix_ns is None and age_s < SETTLES_S


def _count_steps(rank: RankRun) -> int:
    with contextlib.suppress(RunError):
        return rank.count_steps()
    return 0
