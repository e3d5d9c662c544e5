"""How a job ended: one answer from the ends of all its ranks."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import pytest

from collector.format.run import open_run
from collector.hangs.blame import Stop
from profiler_server.analysis.ranks.ending import find_end
from profiler_server.analysis.ranks.ends import CutOff, Death, End, Killed, Raised, Severed
from profiler_server.diagnosis.end_sentences import describe_end
from profiler_server.diagnosis.judging import diagnose
from profiler_server.report.brief import write_brief
from profiler_server.report.building import build_report
from profiler_server.report.text import render_text
from tests.support.live import edit_rank
from tests.support.machines import build_ranks
from tests.support.runs import RunPlan, build_run

WAITS = {"step": 41, "phase": "communication", "after": "backward", "in_collective": True, "ended": 811}
CALL = {"name": "allreduce", "bytes": 25 << 20, "is_begun": True}
FETCHES: dict[str, Any] = {"step": 41, "phase": "data_wait", "after": "optimizer", "in_collective": False, "ended": 811}
LOST = "RuntimeError: Connection closed by peer [127.0.0.1]:1"
MS = 10**6


def stop(path: Path, *facts: dict[str, Any], **values: Any) -> Path:
    """Build a job that was cut off, with these facts of its ranks; where there is a moment alone, it is in one."""
    run = build_ranks(path, len(facts)) if len(facts) > 1 else build_run(path, RunPlan())
    for rank, own in enumerate(facts):
        edit_rank(run, rank, **{"state": "crashed", "ended_unix_ns": 1, **values}, facts=own)
    return run


def find(path: Path, *facts: dict[str, Any], **values: Any) -> End | None:
    return find_end(open_run(stop(path, *facts, **values)))


def at(moment: Any) -> dict[str, Any]:
    return {"moment": moment}


def died(at_ms: int, **status: int) -> dict[str, Any]:
    return {"process_end": {"at_unix_ns": at_ms * MS, **status}}


def describe(end: End | None) -> str:
    assert end is not None
    return describe_end(end)


def test_the_rank_that_did_not_come_is_told_from_those_that_wait_for_it(tmp_path: Path) -> None:
    waits = at({**WAITS, "next": CALL})
    assert describe(find(tmp_path / "run", waits, waits, waits, at(FETCHES))) == (
        "Rank 3 never entered collective 812 (allreduce, 25.0 MiB); 3 ranks were waiting in it when the job ended. Rank 3 "
        "was in data wait of step 41."
    )


def test_the_function_of_the_rank_that_did_not_come_is_named_where_it_was_seen(tmp_path: Path) -> None:
    still = {"for_ns": 9, "limit_ns": 1, "alone_limit_ns": 2, "stack": "fetch (data.py:88)"}
    found = find(tmp_path / "run", at({**WAITS, "next": CALL}), {**at(FETCHES), "standing": still})
    assert describe(found).endswith("Rank 1 was in data wait of step 41, at fetch (data.py:88).")


def test_ranks_that_wait_in_a_backward_of_ddp_wait_for_the_one_that_is_elsewhere(tmp_path: Path) -> None:
    backward = {**FETCHES, "phase": "backward", "next": {"name": "allreduce (DDP)", "bytes": 1}}
    assert describe(find(tmp_path / "run", at(backward), at(backward), at(FETCHES))) == (
        "When the job ended, 2 ranks were in the backward, which waits for the gradients of all ranks, and rank 2 not. "
        "Rank 2 was in data wait of step 41."
    )
    plain = at({**backward, "next": {}})
    assert isinstance(find(tmp_path / "plain", plain, plain, at(FETCHES)), CutOff)


def test_what_a_place_tells_wrongly_is_left_out_of_it(tmp_path: Path) -> None:
    assert isinstance(find(tmp_path / "none", at(WAITS), at(7)), CutOff)
    assert find(tmp_path / "ended", at(WAITS), at(FETCHES), state="complete") is None
    wrong = {"ended": "812", "phase": "<script>", "next": [1], "step": -1}
    found = find(tmp_path / "run", at(WAITS), {**at(wrong), "process_end": {"signal": "9", "at_unix_ns": -1}})
    assert isinstance(found, Stop)
    (place,) = found.missing
    assert (place.rank, place.step, place.phase, place.name, place.ended) == (1, 0, "", "", 0)


def test_the_rank_whose_signal_is_its_own_is_the_first_where_a_launcher_ended_the_others(tmp_path: Path) -> None:
    """As torchrun does: it ends the others by SIGTERM."""
    ended = (died(120, signal=15), died(100, signal=6), died(121, signal=15))
    found = find(tmp_path / "run", *ended)
    assert found == Killed(Death(1, signal.SIGABRT, None), 60, lost=0, ended=2)
    assert describe(found) == "Rank 1 was ended by SIGABRT after 60 steps; 2 other ranks were ended after it."
    unseen = find(tmp_path / "unseen", died(120, signal=15), died(100))
    assert describe(unseen).startswith("Rank 1 was killed, left by itself, or lost its machine: it left no error")


def test_an_exit_in_the_middle_is_named_with_its_code(tmp_path: Path) -> None:
    path = stop(tmp_path / "run", died(100, exit_code=3), {"ended_by": LOST})
    assert describe(find_end(open_run(path))) == (
        "Rank 0 left with exit code 3 after 60 steps; 1 other rank lost the connection to it."
    )


def test_no_rank_is_the_first_where_one_signal_ended_them_all(tmp_path: Path) -> None:
    found = find(tmp_path / "run", died(100, signal=15), died(101, signal=15))
    assert found == CutOff((0, 1), signal.SIGTERM, 60)
    assert describe(found) == "Ranks 0, 1 were ended by SIGTERM after 60 steps: no error was left."
    both = find(tmp_path / "both", died(100, signal=9), died(101, signal=9))
    assert describe(both).endswith("The log of the system tells whether its memory was full.")
    assert describe(find(tmp_path / "unseen", {}, {})) == (
        "Ranks 0, 1 were killed, left by themselves, or lost their machine after 60 steps: no error was left."
    )


def test_ranks_that_waited_for_a_moment_only_are_not_said_to_have_hung(tmp_path: Path) -> None:
    """A job that is cancelled is somewhere in a step: some ranks are always a little earlier in a collective."""
    epoch_ns = open_run(build_ranks(tmp_path / "any", 2)).manifest.epoch_unix_ns
    for waited_ms, kind in ((999, CutOff), (1_000, Stop)):
        ended = died(epoch_ns // MS + 60_000, signal=15)
        since = {"since_ns": (60_000 - waited_ms) * MS}
        found = find(
            tmp_path / str(waited_ms), {**at({**WAITS, "next": CALL, **since}), **ended}, {**at(FETCHES), **ended}
        )
        assert isinstance(found, kind)


def test_a_rank_that_was_aborted_while_it_waited_is_not_to_blame(tmp_path: Path) -> None:
    """A watchdog aborts the ranks that wait; the one that hangs is ended after them."""
    waits = {**at({**WAITS, "next": CALL}), **died(100, signal=6)}
    found = find(tmp_path / "run", waits, {**at(FETCHES), **died(200, signal=15)})
    assert isinstance(found, Stop)
    assert [place.rank for place in found.missing] == [1]


def test_a_training_of_one_process_has_no_rank(tmp_path: Path) -> None:
    raised = find(tmp_path / "raised", {"ended_by": "ValueError: labels"}, state="complete")
    assert raised == Raised((), "ValueError: labels", 40, 0)
    assert describe(raised) == "The run was ended after 40 steps by ValueError: labels."
    assert describe(find(tmp_path / "killed", died(1, signal=9))).startswith(
        "The training was ended by SIGKILL after 40"
    )
    assert find(tmp_path / "stopped", {"ended_by": "KeyboardInterrupt"}, state="complete") is None
    assert find(tmp_path / "left", {"ended_by": "exit"}, state="complete") is None


@pytest.mark.parametrize(
    "own", ["TimeoutError: read of shard 30 timed out", "ConnectionRefusedError: no dataset server"]
)
def test_a_script_s_own_error_is_no_lost_connection(tmp_path: Path, own: str) -> None:
    assert find(tmp_path / "alone", {"ended_by": own}, state="complete") == Raised((), own, 40, lost=0)
    found = find(tmp_path / "run", {"ended_by": LOST}, {"ended_by": own}, state="complete")
    assert found == Raised((1,), own, 60, lost=1)


def test_the_first_of_several_errors_is_told_with_all_ranks_that_had_it_and_a_long_one_is_shortened(
    tmp_path: Path,
) -> None:
    errors = [{"ended_by": by} for by in ("MemoryError: no room", "MemoryError: no room", "KeyError: 'x'")]
    run = stop(tmp_path / "run", *errors, {}, state="complete")
    edit_rank(run, 2, ended_unix_ns=2)
    assert write_brief(open_run(run))[0] == "The job was ended after 60 steps by MemoryError: no room (ranks 0, 1)."
    long = stop(tmp_path / "long", {"ended_by": "ValueError: " + "\n".join(["x" * 90] * 3)}, {}, state="complete")
    told = write_brief(open_run(long))[0]
    assert told.startswith("The job was ended ")
    assert len(told) < 200
    assert "\n" not in told


def test_ranks_that_a_launcher_ends_after_a_failure_are_not_its_cause(tmp_path: Path) -> None:
    failed = "RuntimeError: Gloo connectFullMesh failed with [/src/gloo/tcp/pair.cc:152] Connection refused"
    run = open_run(stop(tmp_path / "run", {"ended_by": failed}, died(100, signal=15)))
    assert describe(find_end(run)) == (
        "Rank 0 failed in communication after 60 steps, and no rank left an error of its own: RuntimeError: Gloo "
        "connectFullMesh failed with Connection refused."
    )
    late = open_run(stop(tmp_path / "late", {"ended_by": LOST}, died(100, signal=15), ended_unix_ns=10**9))
    assert isinstance(find_end(late), CutOff)


def test_a_rank_that_slept_until_the_others_timed_out_is_named(tmp_path: Path) -> None:
    """gloo's time is over for those that wait; then a launcher ends the one that never came."""
    failed = {"ended_by": "RuntimeError: [/src/gloo/transport/tcp/unbound_buffer.cc:78] gloo: timed out"}
    sleeps = {**at(FETCHES), **died(100, signal=15)}
    left = {**failed, **at({**FETCHES, "ended": FETCHES["ended"] + 1})}
    assert describe(find(tmp_path / "run", left, sleeps, left)) == (
        "Rank 1 never entered collective 812; 2 ranks were waiting in it when the job ended. Rank 1 was in data wait of "
        "step 41."
    )
    assert isinstance(find(tmp_path / "even", {**failed, **at(FETCHES)}, sleeps), Severed)
    still = {"for_ns": 11 * 10**9, "limit_ns": 1, "alone_limit_ns": 2, "stack": "wait_for_lock (train.py:7)"}
    unseen = {**at(FETCHES), **died(100), "standing": still}
    assert describe(find(tmp_path / "unseen", left, unseen, left)).endswith("at wait_for_lock (train.py:7).")
    # One that died on its way is why the others lost it, whatever it had not entered yet.
    assert isinstance(find(tmp_path / "died", left, {**at(FETCHES), **died(100)}, left), Killed)


def test_nothing_is_said_until_the_recorder_of_a_rank_that_died_has_written_what_it_knows(tmp_path: Path) -> None:
    path = stop(tmp_path / "run", {"ended_by": LOST}, {})
    edit_rank(path, 1, heartbeat_unix_ns=time.time_ns() - 5 * 10**9, ended_unix_ns=None)
    assert find_end(open_run(path)) is None
    edit_rank(path, 1, heartbeat_unix_ns=time.time_ns() - 10**10)
    assert find_end(open_run(path)) is not None


def test_pages_and_terminal_say_first_whom_the_ranks_of_a_killed_job_waited_for(tmp_path: Path) -> None:
    path = build_ranks(tmp_path / "run", 2)
    assert build_report(open_run(path))["hang"] is None
    for rank, moment in enumerate(({**WAITS, "next": CALL}, FETCHES)):
        edit_rank(path, rank, state="crashed", facts={"moment": moment}, ended_unix_ns=1)
    run = open_run(path)
    said = describe(find_end(run))
    assert said.startswith("Rank 1 never entered collective 812")
    assert diagnose(run, 0).sentence.startswith(f"{said} Until then: Compute-bound: ")
    assert write_brief(run)[0] == said
    report = build_report(run)
    assert report["end"] == {"kind": "waited", "sentence": said}
    assert report["hang"] == {
        "sentence": said,
        "cause": "ended",
        "group": "",
        "sequence": 812,
        "name": "allreduce",
        "missing": [1],
        "waiting": [0],
    }
    assert render_text(report, run).split("\n\n")[1].startswith(said)
