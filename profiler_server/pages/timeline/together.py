"""Several ranks on one timeline: which, on whose clock, and what is known of their clocks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from collector.format.schema.errors import OptionError
from profiler_server.analysis.ranks.one_clock import MOST_TOGETHER, align_ranks
from profiler_server.analysis.ranks.ranks import summarize_some
from profiler_server.analysis.selection import choose_ranks, spell_numbers
from profiler_server.diagnosis.clock_sentences import describe_clocks
from profiler_server.page import PageRequest
from profiler_server.timeline.view import view_clock

PROPOSED = 3


@dataclass(frozen=True)
class Together:
    """The field in which ranks are chosen, and what is said of their clocks. `most` is how many may be chosen."""

    text: str
    most: int
    sentence: str
    problem: str = ""


@dataclass(frozen=True)
class Chosen:
    """The ranks that are shown together, none for a page of one rank; `clocks` as the viewer reads them."""

    together: Together | None
    ranks: tuple[int, ...] = ()
    clocks: tuple[dict[str, Any], ...] = ()


def read_chosen(request: PageRequest) -> Chosen:
    """Read `?ranks=5,0,3`. A rank that the page is of comes first: its clock counts, and the totals are its own."""
    if len(request.ranks) < 2:
        return Chosen(None)
    text = request.query.get("ranks", "").strip()
    if not text:
        return Chosen(Together(spell_numbers(request.ranks[:PROPOSED]), MOST_TOGETHER, ""))
    try:
        ranks = choose_ranks(request.ranks, text, MOST_TOGETHER)
    except OptionError as error:
        problem = f"These ranks cannot be shown together: {error}. Rank {request.rank} is shown."
        return Chosen(Together(text[:200], MOST_TOGETHER, "", problem))
    if request.query.get("rank"):
        ranks = tuple(dict.fromkeys((request.rank, *ranks)))[:MOST_TOGETHER]
    clocks = align_ranks(summarize_some(request.run, ranks))
    sentence = f"{describe_clocks(clocks)} Totals and the search are those of rank {ranks[0]}.".strip()
    told = Together(",".join(map(str, ranks)), MOST_TOGETHER, sentence)
    return Chosen(told, ranks, tuple(view_clock(clock) for clock in clocks))


def show_first(request: PageRequest, chosen: Chosen) -> PageRequest:
    """Return the request for the first of the ranks that are shown together."""
    return replace(request, rank=chosen.ranks[0]) if chosen.ranks else request
