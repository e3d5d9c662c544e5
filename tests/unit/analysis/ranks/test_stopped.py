"""Who waited for whom when a job of several ranks did not end by itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from collector.format.run import open_run
from profiler_server.analysis.ranks.ranks import RankSummary
from profiler_server.analysis.ranks.stopped import find_stop
from profiler_server.diagnosis.judging import diagnose
from profiler_server.diagnosis.rank_sentences import describe_stop, recall_end
from profiler_server.report.brief import write_brief
from profiler_server.report.building import build_report
from profiler_server.report.text import render_text
from tests.support.jobs import JobPlan, make_job, summarize_job
from tests.support.live import edit_rank
from tests.support.machines import build_ranks

WAITS = {"step": 41, "phase": "communication", "after": "backward", "in_collective": True, "ended": 811}
CALL = {"name": "allreduce", "bytes": 25 << 20, "is_begun": True}
FETCHES = {"step": 41, "phase": "data_wait", "after": "optimizer", "in_collective": False, "ended": 811}


def stop(*moments: Any) -> list[RankSummary]:
    ranks = summarize_job(make_job(JobPlan(ranks=len(moments), steps=12)))
    return [replace(rank, state="crashed", moment=moment) for rank, moment in zip(ranks, moments, strict=True)]


def test_the_rank_that_did_not_come_is_told_from_those_that_wait_for_it() -> None:
    waits = {**WAITS, "next": CALL}
    found = find_stop(stop(waits, waits, waits, FETCHES))
    assert found is not None
    assert describe_stop(found) == (
        "Rank 3 never entered collective 812 (allreduce, 25.0 MiB); 3 ranks were waiting in it when the job ended. Rank 3 "
        "was in data wait of step 41."
    )


def test_the_function_of_the_rank_that_did_not_come_is_named_where_it_was_seen() -> None:
    ranks = stop({**WAITS, "next": CALL}, FETCHES)
    still = {"for_ns": 9, "limit_ns": 1, "alone_limit_ns": 2, "stack": "fetch (data.py:88)"}
    found = find_stop([ranks[0], replace(ranks[1], standing=still)])
    assert found is not None
    assert describe_stop(found).endswith("Rank 1 was in data wait of step 41, at fetch (data.py:88).")


def test_ranks_that_wait_in_a_backward_of_ddp_wait_for_the_one_that_is_elsewhere() -> None:
    backward = {**FETCHES, "phase": "backward", "next": {"name": "allreduce (DDP)", "bytes": 1}}
    found = find_stop(stop(backward, backward, FETCHES))
    assert found is not None
    assert describe_stop(found) == (
        "When the job ended, 2 ranks were in the backward, which waits for the gradients of all ranks, and rank 2 not. "
        "Rank 2 was in data wait of step 41."
    )
    plain = {**backward, "next": {}}
    assert find_stop(stop(plain, plain, FETCHES)) is None


@pytest.mark.parametrize("moment", [None, 7])
def test_what_is_told_wrongly_is_no_place(moment: Any) -> None:
    assert find_stop(stop(WAITS, moment)) is None


def test_what_a_place_tells_wrongly_is_left_out_of_it() -> None:
    found = find_stop(stop(WAITS, {"ended": "812", "phase": "<script>", "next": [1], "step": -1}))
    assert found is not None
    (place,) = found.missing
    assert (place.rank, place.step, place.phase, place.name, place.ended) == (1, 0, "", "", 0)


def test_a_job_that_ended_by_itself_did_not_stop() -> None:
    ranks = [replace(rank, state="complete") for rank in stop(WAITS, FETCHES)]
    assert find_stop(ranks) is None


def test_pages_and_terminal_say_whom_the_ranks_of_a_killed_job_waited_for(tmp_path: Path) -> None:
    path = build_ranks(tmp_path / "run", 2)
    assert recall_end(open_run(path)) == ""
    assert build_report(open_run(path))["hang"] is None
    for rank, moment in enumerate(({**WAITS, "next": CALL}, FETCHES)):
        edit_rank(path, rank, state="crashed", facts={"moment": moment}, ended_unix_ns=1)
    run = open_run(path)
    said = recall_end(run)
    assert said.startswith("Rank 1 never entered collective 812")
    assert said in diagnose(run, 0).sentence
    assert said in write_brief(run)
    report = build_report(run)
    assert report["hang"] == {
        "sentence": said,
        "cause": "ended",
        "group": "",
        "sequence": 812,
        "name": "allreduce",
        "missing": [1],
        "waiting": [0],
    }
    assert render_text(report, run).split("\n\n")[1].startswith("Compute-bound: ")
