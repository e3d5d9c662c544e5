"""Which rank's error ended a job of several, in a sentence: the others only lost their connection to it."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass

from collector.format.run import Run
from collector.format.schema.errors import RunError
from collector.format.schema.wording import format_ranks_named
from profiler_server.format import shorten_middle

MOST_RANKS = 1024
_LONGEST = 120
_LOST = re.compile(
    r"connection (was )?(closed|reset|refused)|remote worker|broken pipe|socket|watchdog|timed? ?out|nccl|SIGTERM",
    re.IGNORECASE,
)
"""What the ranks say that another one has left."""
_UNTOLD = "exit"
"""The process left by itself before the end of the recording."""


@dataclass(frozen=True)
class _Ended:
    rank: int
    by: str
    at_unix_ns: int


def recall_failure(run: Run) -> str:
    """Say whose error ended a job of several ranks; "" where none had one, and where it is not known whose was first."""
    if len(run.ranks) < 2 or run.manifest.source != "collector":
        return ""
    ended = _read_ended(run)
    own = [one for one in ended if not _LOST.search(one.by)]
    if not own:
        return _say_cut_off(run, len(ended))
    first = min(own, key=lambda one: one.at_unix_ns)
    alike = [one for one in own if one.by == first.by]
    lost = len(ended) - len(own)
    whom = "it" if len(alike) == 1 else "them"
    connection = f"; {_count(lost)} lost the connection to {whom}" if lost else ""
    by = shorten_middle(" ".join(first.by.split()), _LONGEST).rstrip(".")
    return f"The job was ended by {by} ({format_ranks_named([one.rank for one in alike])}){connection}."


def _say_cut_off(run: Run, lost: int) -> str:
    """Say that one rank was killed where the others lost it; of several that were, none is known to be the first."""
    cut_off = [rank for rank in itertools.islice(run.ranks, MOST_RANKS) if _is_cut_off(run, rank)] if lost else []
    if len(cut_off) != 1:
        return ""
    return (
        f"Rank {cut_off[0]} was killed, or its machine lost: it left no error; {_count(lost)} lost the connection to it. "
        "The log of the system tells whether its memory was full."
    )


def _is_cut_off(run: Run, rank: int) -> bool:
    with contextlib.suppress(RunError):
        found = run.read_rank(rank)
        return found.state == "crashed" and not found.manifest.facts.get("ended_by")
    return False


def _count(ranks: int) -> str:
    return "1 other rank" if ranks == 1 else f"{ranks:,} other ranks"


def _read_ended(run: Run) -> Sequence[_Ended]:
    found = []
    for rank in itertools.islice(run.ranks, MOST_RANKS):
        with contextlib.suppress(RunError):  # the page of that rank says what is wrong with it
            manifest = run.read_rank(rank).manifest
            by = manifest.facts.get("ended_by")
            if isinstance(by, str) and by not in ("", _UNTOLD):
                found.append(_Ended(rank, by, manifest.ended_unix_ns or 1 << 62))
    return found
