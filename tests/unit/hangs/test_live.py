"""Who waits for whom while a job records: judged from what its ranks tell of themselves."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from collector.format.run import open_run
from collector.hangs.live import classify_positions, describe_live_hang, find_standing
from collector.hangs.positions import RankPosition, Still, read_position
from profiler_server.fleet.gauges import Gauges
from profiler_server.fleet.metrics import render_metrics
from profiler_server.report.brief import write_brief
from profiler_server.report.building import build_report
from profiler_server.report.text import render_text
from profiler_server.store.catalog import Catalog
from profiler_server.store.redaction import redact
from tests.support.live import build_live_run, edit_rank
from tests.support.ranks_page import show_ranks

S = 10**9
NOW = 1_780_000_000 * S
MOVES = RankPosition(3, 41, "data_wait", "optimizer", False, 811, "allreduce", 25 << 20, True, NOW)
WAITS = RankPosition(
    0, 41, "communication", "backward", True, 811, "allreduce", 25 << 20, True, NOW, Still(94 * S, 30 * S, 60 * S)
)


def stand(place: RankPosition, for_s: float, stack: str = "") -> RankPosition:
    return replace(place, still=Still(int(for_s * S), 30 * S, 60 * S, stack))


def waiting(*ranks: int) -> list[RankPosition]:
    return [replace(WAITS, rank=rank) for rank in ranks]


def alike(for_s: float) -> list[RankPosition]:
    return [stand(replace(MOVES, rank=rank), for_s) for rank in (0, 1)]


BACKWARD = replace(MOVES, phase="backward", name="allreduce (DDP)")
ALONE = stand(replace(MOVES, rank=0, ended=0), 94, "recv (connection.py:250), called from fetch (data.py:88)")
GONE = replace(MOVES, rank=2, state="crashed")
ENDED = replace(MOVES, rank=2, state="complete")


@pytest.mark.parametrize(
    ("places", "text"),
    [
        (
            [*waiting(0, 1, 2), stand(MOVES, 96, "fetch (data.py:88)"), *waiting(4, 5, 6, 7)],
            "Rank 3 has not entered allreduce 812 (25.0 MiB) for 94 s; 7 ranks wait for it. Rank 3 was last seen in data "
            "wait of step 41, at fetch (data.py:88).",
        ),
        (
            # It evaluates, or saves: after so long the others do wait for it.
            [*waiting(0, 1), MOVES],
            "Rank 3 has not entered allreduce 812 (25.0 MiB) for 94 s; 2 ranks wait for it. Rank 3 was last seen in data "
            "wait of step 41.",
        ),
        (
            [*(stand(replace(BACKWARD, rank=rank), 50) for rank in (0, 1)), replace(MOVES, rank=2)],
            "2 ranks wait in the backward for the gradients of rank 2, for 50 s. Rank 2 was last seen in data wait of step "
            "41.",
        ),
        (
            # Calls return at once.
            [*(stand(replace(MOVES, rank=n, phase="tail", ended=812), 40) for n in (0, 1)), replace(MOVES, rank=2)],
            "Rank 2 has called 811 collectives, 2 of the others 812; nothing has happened there for 40 s. Rank 2 was last "
            "seen in data wait of step 41.",
        ),
        (waiting(0, 1), "All 2 ranks have been in allreduce 812 for 94 s: look at the network."),
        (alike(61), "No step for 61 s: all 2 ranks stand still, rank 0 in data wait of step 41."),
        (
            [ALONE],
            "No step for 94 s: the training thread stands still in data wait of step 41, at recv (connection.py:250), "
            "called from fetch (data.py:88).",
        ),
        (
            [*waiting(0, 1), GONE],
            "Rank 2 has ended; 2 ranks have stood still for 94 s, rank 0 in communication of step 41.",
        ),
        (
            [stand(replace(MOVES, rank=0), 61), ENDED],
            "Rank 2 has ended; 1 rank has stood still for 61 s, rank 0 in data wait of step 41.",
        ),
    ],
)
def test_a_job_that_stands_still_says_who_waits_for_whom(places: list[RankPosition], text: str) -> None:
    found = classify_positions(places)
    assert found is not None
    assert describe_live_hang(found, "25.0 MiB") == text


@pytest.mark.parametrize(
    "places",
    [
        [stand(WAITS, 29), MOVES],  # the run is used to that
        [*waiting(0, 1), replace(MOVES, seen_unix_ns=NOW - 95 * S)],  # heard before the others began to wait
        alike(59),  # counts later than where ranks differ
        [stand(ALONE, 59)],
        [stand(replace(MOVES, rank=0), 59), ENDED],  # it may save at the end
    ],
)
def test_a_job_that_may_get_on_blames_nobody(places: list[RankPosition]) -> None:
    assert classify_positions(places) is None


@pytest.mark.parametrize("told", [None, 7, {}, {"for_ns": "9"}, {"for_ns": -1, "limit_ns": 1, "alone_limit_ns": 1}])
def test_what_is_told_wrongly_stands_nowhere(told: Any) -> None:
    place = read_position(0, {"phase": "<b>", "ended": True}, NOW, told)
    assert place is not None
    assert (place.still, place.phase, place.ended) == (None, "", 0)


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A run of two ranks that records: rank 0 waits in a collective, rank 1 sleeps."""
    run = build_live_run(tmp_path / "job", ranks=2)
    common = {
        "step": 41,
        "after": "backward",
        "ended": 811,
        "next": {"name": "allreduce", "bytes": 1 << 20, "is_begun": True},
    }
    places = ({"phase": "communication", "in_collective": True}, {"phase": "", "in_collective": False})
    stack = "hold (secret.py:7)"
    still = {"for_ns": 94 * S, "limit_ns": 30 * S, "alone_limit_ns": 60 * S, "step": 41, "stack": stack}
    for rank, place in enumerate(places):
        facts = {"moment": {**common, **place}, "standing": still}
        edit_rank(run, rank, facts=facts, heartbeat_unix_ns=time.time_ns())
    return run


SENTENCE = (
    "Rank 1 has not entered allreduce 812 (1.00 MiB) for 94 s; 1 rank waits for it. Rank 1 was last seen after backward of "
    "step 41, at hold (secret.py:7)."
)


def test_every_page_says_that_the_job_stands_still(job: Path) -> None:
    run = open_run(job)
    found = show_ranks(run).comparison
    assert found is not None
    assert (found.sentence, found.tone) == (SENTENCE, "bad")
    report = build_report(run)
    assert (report["hang"]["missing"], report["hang"]["waiting"], report["hang"]["cause"]) == ([1], [0], "standing")
    assert SENTENCE in render_text(report, run)
    brief = write_brief(run)
    assert brief[0].startswith(SENTENCE)
    assert not any(line.startswith(("To change", "Nothing to change", "Predicted")) for line in brief)
    entry = Catalog(job.parent).list_runs().find("job")
    assert entry is not None
    assert entry.headline.stands_still.startswith("Rank 1 has not entered allreduce 812 for 94 s")


def test_monitoring_is_told_how_long_it_stands(job: Path) -> None:
    text = scrape(job.parent)
    assert 'stepscope_standing_seconds{run="job"} 94' in text
    edit_rank(job, 0, facts={})
    edit_rank(job, 1, facts={})
    assert 'stepscope_standing_seconds{run="job"} 0' in scrape(job.parent)


def scrape(base: Path) -> str:
    return render_metrics(Gauges(Catalog(base)).read())[0].decode()


def test_a_redacted_run_does_not_name_the_function(job: Path) -> None:
    run = redact(open_run(job))
    found = find_standing([run.read_rank(rank) for rank in run.ranks])
    assert found is not None
    assert "secret" not in describe_live_hang(found)


def test_a_rank_that_told_of_no_place_yet_is_not_taken_for_none(job: Path) -> None:
    edit_rank(job, 1, facts={}, heartbeat_unix_ns=time.time_ns() - 300 * S)
    assert find_standing([open_run(job).read_rank(rank) for rank in (0, 1)]) is None


def test_a_run_that_has_ended_stands_nowhere(job: Path) -> None:
    for rank in (0, 1):
        edit_rank(job, rank, state="complete")
    assert find_standing([open_run(job).read_rank(rank) for rank in (0, 1)]) is None
