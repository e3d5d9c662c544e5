"""What is said of clocks."""

from __future__ import annotations

import pytest

from profiler_server.analysis.ranks.one_clock import RankClock
from profiler_server.diagnosis.clock_sentences import describe_clocks

FIRST = RankClock(0, "reference")


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
