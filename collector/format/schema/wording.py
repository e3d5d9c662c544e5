"""Spell counts with their nouns, ranks, percents and hints, in the same form in all texts."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

MOST_NAMED = 8
REQUEST_RANGE, CALL_RANGE = "request", "model call"
"""The names of ranges that are the handling of a request, and a call of a model."""


def format_number_of(count: int, noun: str) -> str:
    """Return a count with its noun, `1 step`, `40 batches`, `1,200 steps`."""
    return f"{count:,} {noun if count == 1 else form_plural(noun)}"


def format_ranks(there: int, world_size: int) -> str:
    """Return the number of ranks with data: `4 ranks`, or `2 of 128 ranks` if the other ranks have no data."""
    of = f"{there:,} of " if there < world_size else ""
    return of + format_number_of(max(there, world_size), "rank")


def format_ranks_named(ranks: Sequence[int], count: int | None = None) -> str:
    """Return `rank 3` or `ranks 3, 5`; of more than MOST_NAMED ranks only the first are named. `count` is their total
    number if `ranks` is not complete, None if it is."""
    count = len(ranks) if count is None else count
    if count == 1:
        return f"rank {ranks[0]}"
    more = f" and {count - MOST_NAMED:,} more" if count > MOST_NAMED else ""
    return f"ranks {', '.join(map(str, ranks[:MOST_NAMED]))}{more}"


def suggest_nearest(name: str, known: Sequence[str], otherwise: str, cutoff: float = 0.6) -> str:
    """Return `did you mean 'x'?` with the nearest known name, or `otherwise` if no name is near."""
    near = difflib.get_close_matches(name, known, 1, cutoff)
    return f"did you mean {near[0]!r}?" if near else otherwise


def form_plural(noun: str) -> str:
    """Return the plural of a regular noun: `steps`, `batches`."""
    return f"{noun}es" if noun.endswith(("s", "x", "ch", "sh")) else f"{noun}s"


def format_percent(part_frac: float) -> str:
    """Return a fraction in whole percent, `70 %`."""
    return f"{100.0 * part_frac:.0f} %"


def format_part(part: int, whole: int) -> str:
    """Return `part` of `whole` in whole percent, `98 %`. A nonzero part is never 0 %, an incomplete one never 100 %."""
    percent = round(100 * part / whole)
    if percent == 0 and part:
        return "less than 1 %"
    return "more than 99 %" if percent == 100 and part < whole else f"{percent} %"
