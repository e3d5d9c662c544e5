"""Whose error ended a job: the others only say that they lost their connection."""

from __future__ import annotations

from pathlib import Path

from collector.format.run import open_run
from profiler_server.report.brief import write_brief
from tests.support.live import edit_rank
from tests.support.runs import RunPlan, build_run

S = 10**9
LOST = "RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:15790. Check the logs"


def build_job(path: Path, *ended: str) -> Path:
    """Build a job whose ranks end by these errors, the first rank first; "" for one that ended by itself."""
    run = build_run(path, RunPlan(ranks=len(ended)))
    for rank, by in enumerate(ended):
        edit_rank(run, rank, facts={"ended_by": by} if by else {}, ended_unix_ns=(1_800_000_000 + rank) * S)
    return run


def say_first(path: Path) -> str:
    return write_brief(open_run(path))[0]


def test_the_rank_whose_own_error_ended_the_job_is_named_and_the_others_are_not(tmp_path: Path) -> None:
    run = build_job(tmp_path / "job", LOST, LOST, "ValueError: labels are broken")
    assert say_first(run) == (
        "The job was ended after 40 steps by ValueError: labels are broken (rank 2); 2 other ranks lost the connection to "
        "it."
    )


def test_the_first_of_several_errors_is_told_with_all_ranks_that_had_it(tmp_path: Path) -> None:
    run = build_job(tmp_path / "job", "MemoryError: no room", "MemoryError: no room", "KeyError: 'x'", "")
    assert say_first(run) == "The job was ended after 40 steps by MemoryError: no room (ranks 0, 1)."


def test_nobody_is_named_where_the_ranks_ended_by_themselves(tmp_path: Path) -> None:
    for ended in (("exit", "exit"), ("", "")):
        assert say_first(build_job(tmp_path / "".join(ended), *ended)).startswith("Compute-bound: ")


def test_a_long_error_is_shortened(tmp_path: Path) -> None:
    run = build_job(tmp_path / "job", "ValueError: " + "\n".join(["x" * 90] * 3), "")
    told = say_first(run)
    assert told.startswith("The job was ended ")
    assert len(told) < 200
    assert "\n" not in told


def test_a_rank_that_was_killed_is_named_where_the_others_lost_it(tmp_path: Path) -> None:
    run = build_job(tmp_path / "job", LOST, "", LOST)
    for rank in range(3):
        edit_rank(run, rank, state="crashed")
    assert say_first(run).startswith(
        "Rank 1 was killed, left by itself, or lost its machine: it left no error; 2 other ranks lost the connection"
    )
    edit_rank(run, 2, facts={})  # two left nothing
    assert say_first(run).startswith(
        "Ranks 1, 2 were killed, left by themselves, or lost their machine after 40 steps: "
    )
