"""Who waits for whom while a job records: judged from what its ranks tell of themselves."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from collector.format.run import open_run
from collector.hangs.live import Standing, classify_positions, describe_live_hang, find_standing
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


def must_stand(*places: RankPosition) -> Standing:
    found = classify_positions(places)
    assert found is not None
    return found


def waiting(*ranks: int) -> list[RankPosition]:
    return [replace(WAITS, rank=rank) for rank in ranks]


def test_the_rank_that_the_others_wait_for_is_named_with_where_it_is() -> None:
    late = stand(MOVES, 96, "fetch (data.py:88)")
    found = must_stand(*waiting(0, 1, 2), late, *waiting(4, 5, 6, 7))
    assert describe_live_hang(found, "25.0 MiB") == (
        "Rank 3 has not entered allreduce 812 (25.0 MiB) for 94 s; 7 ranks wait for it. Rank 3 was last seen in data wait "
        "of step 41, at fetch (data.py:88)."
    )


def test_a_rank_that_works_while_the_others_wait_is_named_too() -> None:
    """It evaluates, or saves: after so long the others do wait for it."""
    assert must_stand(*waiting(0, 1), MOVES).stop is not None


def test_ranks_that_wait_for_less_than_the_run_is_used_to_are_not_said_to() -> None:
    assert classify_positions([stand(WAITS, 29), MOVES]) is None


def test_a_rank_that_was_heard_before_the_others_began_to_wait_is_not_blamed() -> None:
    assert classify_positions([*waiting(0, 1), replace(MOVES, seen_unix_ns=NOW - 95 * S)]) is None


def test_ranks_in_a_backward_wait_for_the_one_that_is_elsewhere() -> None:
    backward = [stand(replace(MOVES, rank=rank, phase="backward", name="allreduce (DDP)"), 50) for rank in (0, 1)]
    assert describe_live_hang(must_stand(*backward, replace(MOVES, rank=2))) == (
        "2 ranks wait in the backward for the gradients of rank 2, for 50 s. Rank 2 was last seen in data wait of step 41."
    )


def test_the_rank_that_called_fewer_collectives_is_named_where_calls_return_at_once() -> None:
    ahead = [stand(replace(MOVES, rank=rank, phase="tail", ended=812), 40) for rank in (0, 1)]
    found = must_stand(*ahead, replace(MOVES, rank=2))
    assert describe_live_hang(found) == (
        "Rank 2 has called 811 collectives, 2 of the others 812; nothing has happened there for 40 s. Rank 2 was last seen "
        "in data wait of step 41."
    )


def test_ranks_that_all_wait_in_one_collective_point_at_the_network() -> None:
    assert (
        describe_live_hang(must_stand(*waiting(0, 1)))
        == "All 2 ranks have been in allreduce 812 for 94 s: look at the network."
    )


def test_alike_ranks_count_later_than_ranks_that_differ() -> None:
    alike = [stand(replace(MOVES, rank=rank), 59) for rank in (0, 1)]
    assert classify_positions(alike) is None
    assert describe_live_hang(must_stand(*(stand(place, 61) for place in alike))) == (
        "No step for 61 s: all 2 ranks stand still, rank 0 in data wait of step 41."
    )


def test_a_process_alone_says_where_it_stands() -> None:
    alone = stand(replace(MOVES, rank=0, ended=0), 94, "recv (connection.py:250), called from fetch (data.py:88)")
    assert classify_positions([stand(alone, 59)]) is None
    assert describe_live_hang(must_stand(alone)) == (
        "No step for 94 s: the training thread stands still in data wait of step 41, at recv (connection.py:250), called "
        "from fetch (data.py:88)."
    )


def test_ranks_that_wait_for_one_that_has_ended_say_so() -> None:
    gone = replace(MOVES, rank=2, state="crashed")
    assert describe_live_hang(must_stand(*waiting(0, 1), gone)) == (
        "Rank 2 has ended; 2 ranks have stood still for 94 s, rank 0 in communication of step 41."
    )


def test_a_rank_that_saves_at_the_end_after_the_others_ended_is_given_its_time() -> None:
    ended = replace(MOVES, rank=2, state="complete")
    assert classify_positions([stand(replace(MOVES, rank=0), 59), ended]) is None
    assert must_stand(stand(replace(MOVES, rank=0), 61), ended).gone == (2,)


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
