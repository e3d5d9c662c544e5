"""Ranks, steps and workers that a user chooses by their numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from collector.format.run import RankRun
from collector.format.schema.errors import OptionError
from collector.format.workers import check_numbers, list_workers
from profiler_server.format import find_runs

Numbers = str | Sequence[int] | None
"""Such as `"0,2-5"` or `[0, 2, 3]`; None for all."""
_MOST_RANGES = 1000


def parse_numbers(value: Numbers, what: str) -> tuple[tuple[int, int], ...] | None:
    """Return ranges, both ends included, of `0,2-5` or a list. Raises OptionError."""
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        return tuple((int(number), int(number)) for number in value)
    ranges = []
    for piece in value.split(","):
        ends = [end.strip() for end in piece.split("-")]
        if len(ends) > 2 or not all(end.isascii() and end.isdigit() and len(end) < 16 for end in ends):
            raise OptionError(f"{what}={value[:80]!r} is not understood at {piece[:20]!r}; write such as 0,2-5")
        ranges.append((int(ends[0]), int(ends[-1])))
    if len(ranges) > _MOST_RANGES or any(first > last for first, last in ranges):
        raise OptionError(f"{what}={value[:80]!r} is not a list of rising ranges such as 0,2-5")
    return tuple(ranges)


def spell_numbers(numbers: Iterable[int]) -> str:
    """Return numbers as `parse_numbers` reads them, `0,2-5`."""
    return ",".join(f"{first}" if first == last else f"{first}-{last}" for first, last in find_runs(numbers))


def choose_workers(ranks: Sequence[RankRun], workers: Numbers) -> frozenset[int] | None:
    """Return the DataLoader workers that are asked for, None for all. Raises OptionError for one that no rank has."""
    wanted = parse_numbers(workers, "workers")
    if wanted is None:
        return None
    numbers = (number for first, last in wanted for number in range(first, last + 1))
    return frozenset(check_numbers("worker", list_workers(ranks), numbers))


def choose_ranks(there: Sequence[int], ranks: Numbers, most: int) -> tuple[int, ...]:
    """Return the ranks that are asked for, each once, in their order. OptionError for none, for too many, or one not there."""
    wanted = parse_numbers(ranks, "ranks")
    numbers = (number for first, last in wanted or () for number in range(first, last + 1))
    chosen = tuple(dict.fromkeys(check_numbers("rank", there, numbers)))
    if not chosen:
        raise OptionError(f"ranks={ranks!r} names no rank; write such as 0,2-5")
    if len(chosen) > most:
        raise OptionError(f"ranks={str(ranks)[:80]!r} are {len(chosen):,} ranks; at most {most} are shown together")
    return chosen
