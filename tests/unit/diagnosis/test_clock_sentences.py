"""What is said of clocks, and of who came last to a collective."""

from __future__ import annotations

import pytest

from profiler_server.analysis.ranks.one_clock import Arrival, Meeting, RankClock
from profiler_server.diagnosis.clock_sentences import describe_clocks, describe_meeting

FIRST = RankClock(0, "reference")


def meet(*late_ns: int, sure_ns: float = 50.0, by_clock: bool = True) -> Meeting:
    arrivals = tuple(Arrival(rank, 0, 10, late) for rank, late in enumerate(late_ns))
    return Meeting("allreduce", arrivals, by_clock, sure_ns)


@pytest.mark.parametrize(
    ("meeting", "sentence"),
    [
        (meet(0, 100, 900), "Of 3 ranks, rank 2 came last: the others waited up to 900 ns for it."),
        (meet(0, 900), "Rank 0 came first and waited 900 ns for rank 1."),
        (
            meet(0, 870, 900),
            "Of 3 ranks, ranks 1, 2 came last, too close to tell which: the others waited up to 900 ns.",
        ),
        (
            meet(0, 20, 30),
            "Of 3 ranks all came within 30.0 ns. The clocks agree within 50.0 ns, so which came last is not known.",
        ),
        (
            meet(0, 900, sure_ns=0, by_clock=False),
            "Rank 0 came first and waited 900 ns for rank 1. The clocks are not known to agree: the rank that was in the "
            "call for the shortest time is taken for the last.",
        ),
    ],
)
def test_the_last_is_named_as_far_as_the_clocks_tell(meeting: Meeting, sentence: str) -> None:
    assert describe_meeting(meeting, is_whole=True) == sentence


def test_of_very_many_ranks_only_those_shown_are_spoken_of() -> None:
    assert describe_meeting(meet(0, 1, 900), is_whole=False).startswith("Of the 3 ranks shown here, rank 2 came last")


@pytest.mark.parametrize(
    ("clocks", "sentence"),
    [
        ((FIRST,), ""),
        ((FIRST, RankClock(1, "host")), "The ranks share the clock of their host."),
        (
            (FIRST, RankClock(3, "aligned", 0, -2_310_000_000, 0.0, 48_000.0, 60)),
            "The clocks agree within 48.0 µs at the 95th percentile of 60 collectives. Times are those of rank 0; shifted: "
            "rank 3 by −2.31 s.",
        ),
        (
            (FIRST, RankClock(3, "unknown", lack="few shared"), RankClock(4, "unknown", lack="few shared")),
            "The clock of ranks 3, 4 cannot be aligned (it shares fewer than three collectives with the others): ranks 3, "
            "4 are shown from their own starts, and their times cannot be compared with those of rank 0.",
        ),
    ],
)
def test_clocks_are_described(clocks: tuple[RankClock, ...], sentence: str) -> None:
    assert describe_clocks(clocks) == sentence
