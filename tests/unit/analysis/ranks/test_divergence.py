"""A rank that leaves a collective out, or calls another one than the others, is found in what the ranks have listed."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from collector.format import parts
from collector.format.run import open_run
from collector.format.schema import layout
from collector.format.schema.manifest import Window
from profiler_server.analysis.ranks.divergence import find_divergence
from profiler_server.report.brief import write_brief
from profiler_server.report.building import build_report
from tests.support.live import edit_rank
from tests.support.runs import MS, RunPlan, build_phases, build_run, build_steps
from tests.support.showing import show

STEP = (("allreduce", 4096), ("allreduce", 1024), ("allreduce", 16384))
LOST = "RuntimeError: Connection closed by peer [127.0.0.1]:1"
Sent = tuple[str, int]
Listed = Sequence[tuple[int | None, Sequence[Sent]]]


def list_steps(last: int, tail: Sequence[Sent] = ()) -> list[tuple[int | None, Sequence[Sent]]]:
    """Return what a rank calls in its steps; those of the tail are of the step that did not end."""
    return [*((step, STEP) for step in range(1, last + 1)), (None, tail)]


def build_job(path: Path, *ranks: Listed, group: str = "0") -> Path:
    """Build a job that broke off, whose ranks listed these collectives."""
    build_run(path, RunPlan(ranks=len(ranks), operators=False))
    for rank, listed in enumerate(ranks):
        write_calls(path, rank, listed, group)
        edit_rank(path, rank, facts={"ended_by": LOST}, windows=(), ended_unix_ns=1)
    return path


def write_calls(path: Path, rank: int, listed: Listed, group: str) -> None:
    calls = [(step, name, size) for step, sent in listed for name, size in sent]
    rows = [
        {
            "step": step,
            "name": name,
            "group": group,
            "index": index,
            "start_ns": index * MS,
            "duration_ns": MS,
            "bytes": size,
            "dtype": "float32",
            "group_size": 3,
            "on_device": False,
            "held_ns": MS,
        }
        for index, (step, name, size) in enumerate(calls)
    ]
    table = parts.build_table_from_rows("collectives", rows)
    parts.write_table(table, layout.table_file(layout.rank_path(path, rank), "collectives"))


def test_a_rank_that_left_a_collective_out_is_named_with_what_the_others_entered(tmp_path: Path) -> None:
    others, skips = list_steps(30, STEP[:2]), list_steps(30, (STEP[0], STEP[2]))
    path = build_job(tmp_path / "job", others, skips, others)
    run = open_run(path)
    told = "Rank 1 has left out allreduce 92 (1.00 KiB), which ranks 0, 2 entered in step 31."
    assert write_brief(run)[0] == told
    end = build_report(run)["end"]
    assert (end["kind"], end["sentence"], end["ranks"]) == ("left_out", told, [1])
    assert end["meeting"]["call"] == {"name": "allreduce", "bytes": 1024, "dtype": "float32"}
    # As torchrun ends them: gloo has aborted the rank, and the launcher ended another.
    for rank, number in ((1, 6), (2, 15)):
        edit_rank(path, rank, state="crashed", facts={"process_end": {"at_unix_ns": 5, "signal": number}})
    assert write_brief(open_run(path))[0] == f"{told[:-1]}; rank 1 was ended by SIGABRT."


SAME = (STEP[0], STEP[0])
RARE = ("allreduce", 8)
UNLIKE = (("allgather", 100), ("send", 8), ("allreduce (DDP)", 7), ("allreduce", 64))
"""Pieces of different sizes, calls of two ranks, and reductions of DDP that each reads at its own pace."""


def leave_out(sent: Sequence[Sent], step: int, rest: Sequence[Sent]) -> Listed:
    """Return 30 steps with the same calls, but for one."""
    return [(number, rest if number == step else sent) for number in range(1, 31)]


@pytest.mark.parametrize(
    ("ranks", "told"),
    [
        pytest.param(
            (list_steps(30, (STEP[0], STEP[2])), list_steps(30, STEP[:2])),
            "Rank 0 has left out allreduce 92 (1.00 KiB), which rank 1 entered in step 31.",
            id="of two the one that did other than before",
        ),
        pytest.param(
            (list_steps(30, SAME), list_steps(30, STEP[:2])),
            "Rank 0 called allreduce (4.00 KiB) where rank 1 called allreduce 92 (1.00 KiB), in step 31.",
            id="of two the one that did other than before, with a collective that both listed earlier",
        ),
        pytest.param(
            (leave_out(SAME, 0, ()), leave_out(SAME, 0, ()), leave_out(SAME, 11, SAME[:1])),
            "Rank 2 has left out allreduce 22 (4.00 KiB), which ranks 0, 1 entered in step 11.",
            id="one of the same size, long before the end: nothing fails then",
        ),
        pytest.param(
            (leave_out(STEP[:1], 0, ()), leave_out(STEP[:1], 0, ()), leave_out(STEP[:1], 11, ())),
            "Rank 2 has left out allreduce 11 (4.00 KiB), which ranks 0, 1 entered in step 11.",
            id="the only one of a step",
        ),
        pytest.param(
            (list_steps(30, (STEP[0], RARE)), list_steps(30, STEP[:2]), list_steps(30, (STEP[0], RARE))),
            "Rank 1 has left out allreduce 92 (8.00 B), which ranks 0, 2 entered in step 31.",
            id="one that is called now and then, by a rank that did as in each step before",
        ),
        pytest.param(
            (list_steps(30, STEP[:2]), list_steps(30, STEP[:2]), list_steps(30, (STEP[0], ("broadcast", 8)))),
            "Rank 2 called broadcast (8.00 B) where ranks 0, 1 called allreduce 92 (1.00 KiB), in step 31.",
            id="another collective",
        ),
        pytest.param(
            (list_steps(30, STEP[:1]), list_steps(30), list_steps(31, STEP[:1])),
            "Ranks 0, 1, 2 failed in communication",
            id="together to the end, one of them farther",
        ),
        pytest.param(
            (leave_out(UNLIKE, 0, ()), leave_out((("allgather", 300), ("recv", 8), ("allreduce", 64)), 0, ())),
            "Ranks 0, 1 failed in communication",
            id="what ranks may call unlike",
        ),
        pytest.param(
            (list_steps(30), list_steps(30), leave_out(STEP, 1, STEP[1:])),
            "Ranks 0, 1, 2 failed",
            id="from the first step on: they may have begun to record at different places",
        ),
        pytest.param((list_steps(30), list_steps(30), leave_out(STEP, 2, STEP[1:])), "Rank 2 has left out", id="later"),
    ],
)
def test_the_first_collective_in_which_ranks_were_not_together_is_told(
    tmp_path: Path, ranks: Sequence[Listed], told: str
) -> None:
    assert write_brief(open_run(build_job(tmp_path / "job", *ranks)))[0].startswith(told)


def test_steps_that_one_rank_has_in_a_detailed_window_are_left_out(tmp_path: Path) -> None:
    """Their calls are listed from its trace, with times and names of another source."""
    others = list_steps(30)
    seen = [(step, sent if step not in (8, 9) else ()) for step, sent in others]
    path = build_job(tmp_path / "job", others, seen)
    assert write_brief(open_run(path))[0].startswith("Rank 1 has left out allreduce 22")
    edit_rank(path, 1, windows=(Window(8, 9, 0, 1),))
    assert write_brief(open_run(path))[0].startswith("Ranks 0, 1 failed in communication")


def test_nothing_is_said_of_a_job_that_ended_well_or_whose_log_lost_events(tmp_path: Path) -> None:
    others, skips = list_steps(30, STEP[:2]), list_steps(30, (STEP[0], STEP[2]))
    path = build_job(tmp_path / "job", others, skips, others)
    edit_rank(path, 0, events_lost=5)
    assert write_brief(open_run(path))[0].startswith("Ranks 0, 1, 2 failed in communication")
    for rank in range(3):
        edit_rank(path, rank, facts={}, events_lost=0)
    assert build_report(open_run(path))["end"] is None


def build_job_of_ddp(path: Path, *last_phases: Sequence[str], skips: int = 1) -> Path:
    """Build a job whose ranks were last in these phases after step 30; all but one entered a call right after that step."""
    listed = [list_steps(30, () if rank == skips else STEP[:1]) for rank in range(len(last_phases))]
    build_job(path, *listed)
    steps = build_steps(RunPlan(steps=30))
    end_ns = steps[-1]["start_ns"] + steps[-1]["duration_ns"]
    for rank, phases in enumerate(last_phases):
        folder = layout.rank_path(path, rank)
        rows = [
            {"step": 30, "index": 30, "phase": name, "start_ns": end_ns + MS * at, "duration_ns": MS}
            for at, name in enumerate(("gap", *phases))
        ]
        tables = {"steps": steps, "phases": [*build_phases(steps), *rows]}
        calls = pq.read_table(layout.table_file(folder, "collectives")).to_pylist()
        tables["collectives"] = [
            {**call, "start_ns": call["start_ns"] if call["step"] else end_ns + MS // 2} for call in calls
        ]
        for name, table in tables.items():
            parts.write_table(parts.build_table_from_rows(name, table), layout.table_file(folder, name))
    return path


TRAINED = ("forward", "backward")
GONE_PAST = "Rank 1 has left out allreduce 91 (4.00 KiB), which ranks 0, 2 entered in step 31."


def test_a_rank_that_came_to_its_next_backward_without_the_call_in_which_the_others_stand_has_left_it_out(
    tmp_path: Path,
) -> None:
    """What it calls there are reductions of DDP, which are not compared."""
    path = build_job_of_ddp(tmp_path / "job", (), TRAINED, ())
    assert write_brief(open_run(path))[0] == GONE_PAST
    edit_rank(path, 0, state="crashed", facts={"process_end": {"at_unix_ns": 5, "signal": 6}})
    assert write_brief(open_run(path))[0] == f"{GONE_PAST[:-1]}; rank 0 was ended by SIGABRT."


def test_a_backward_that_did_not_end_counts_too(tmp_path: Path) -> None:
    path = build_job_of_ddp(tmp_path / "job", (), ("forward",), ())
    assert write_brief(open_run(path))[0].startswith("Ranks 0, 1, 2 failed in communication")
    edit_rank(path, 1, facts={"ended_by": LOST, "moment": {"step": 31, "phase": "backward", "since_ns": 1 << 60}})
    assert write_brief(open_run(path))[0] == GONE_PAST


def test_a_rank_that_ended_while_the_others_stand_in_a_call_has_left_it_out(tmp_path: Path) -> None:
    path = build_job_of_ddp(tmp_path / "job", (), (), ())
    edit_rank(path, 1, facts={})
    assert write_brief(open_run(path))[0] == GONE_PAST


@pytest.mark.parametrize(
    "facts", [{"ended_by": "ValueError: bad shard"}, {"process_end": {"at_unix_ns": 5, "signal": 9}}]
)
def test_a_rank_that_raised_or_was_killed_on_its_way_to_the_call_has_not_left_it_out(
    tmp_path: Path, facts: dict[str, object]
) -> None:
    """Its forward may be one that only this rank does, to evaluate."""
    path = build_job_of_ddp(tmp_path / "job", (), ("forward",), ())
    edit_rank(path, 1, state="crashed" if "process_end" in facts else "complete", facts=facts)
    told = write_brief(open_run(path))[0]
    assert told.startswith(
        "The job was ended after 30 steps by ValueError" if "ended_by" in facts else "Rank 1 was ended"
    )


def test_a_call_that_the_others_have_gone_past_too_says_nothing_of_a_rank_that_does_not_list_it(tmp_path: Path) -> None:
    """They do not wait in it: it may be of a thread that does not train."""
    path = build_job_of_ddp(tmp_path / "job", (), TRAINED, TRAINED)
    assert write_brief(open_run(path))[0].startswith("Ranks 0, 1, 2 failed in communication")


def test_a_call_of_a_step_that_a_window_lists_otherwise_says_nothing_either(tmp_path: Path) -> None:
    path = build_job_of_ddp(tmp_path / "job", (), TRAINED, ())
    edit_rank(path, 1, windows=(Window(31, 31, 0, 1),))
    assert write_brief(open_run(path))[0].startswith("Ranks 0, 1, 2 failed in communication")


def test_a_call_that_is_not_listed_but_counted_has_not_been_left_out(tmp_path: Path) -> None:
    """Of a long job the calls of some steps only are listed."""
    path = build_job_of_ddp(tmp_path / "job", (), TRAINED, ())

    def count(rank: int, ended: int, *, is_inside: bool = False) -> None:
        groups = [{"name": "0", "ended": ended}]
        moment = {"step": 31, "in_collective": is_inside, "next": {"group": "0"}, "groups": groups}
        edit_rank(path, rank, facts={"ended_by": LOST, "moment": moment})

    count(0, 90, is_inside=True)
    count(1, 90)
    count(2, 91)
    assert write_brief(open_run(path))[0] == GONE_PAST
    count(1, 91)
    assert write_brief(open_run(path))[0].startswith("Ranks 0, 1, 2 failed in communication")


def change(sent: list[Sent], chance: random.Random) -> None:
    """Leave a call out, add one, or call all the other way round or not at all."""
    place = chance.randint(0, len(sent))
    kind = chance.randrange(4)
    if kind == 0:
        del sent[place : place + 1]
    elif kind == 1:
        sent.insert(place, RARE)
    elif kind == 2:
        sent.reverse()
    else:
        sent.clear()


def draw_job(path: Path, chance: random.Random) -> Path:
    """Build a job whose ranks do the same but for what one or two of them leave out, add or call otherwise."""
    usual = [chance.choice((*STEP, *UNLIKE, RARE)) for _ in range(chance.randint(1, 5))]
    ranks, last = chance.randint(2, 4), chance.choice((2, 3, 9, 30))
    listed = [[(step, list(usual)) for step in range(1, last + 1)] for _ in range(ranks)]
    for _ in range(chance.randint(1, 2)):
        change(chance.choice(listed[chance.randrange(ranks)])[1], chance)
    tails = [usual[: chance.choice((0, 1, 1, 2))] for _ in listed]
    jobs: list[Listed] = [[*steps, (None, tail)] for steps, tail in zip(listed, tails, strict=True)]
    path = build_job(path, *jobs)
    for rank in range(ranks):
        if chance.random() < 0.2:
            edit_rank(
                path, rank, state="crashed", facts={"process_end": {"at_unix_ns": 5, "signal": chance.choice((6, 9))}}
            )
        if chance.random() < 0.1:
            edit_rank(path, rank, windows=(Window(1, min(2, last), 0, 1, 0, "option", ""),))
    return path


def test_how_drawn_jobs_part(tmp_path: Path, golden: Callable[[str, str], None]) -> None:
    lines = []
    for seed in range(80):
        run = open_run(draw_job(tmp_path / str(seed), random.Random(seed)))
        lines.append(
            f"{seed}: {write_brief(run)[0]} {show(find_divergence([run.rank(rank) for rank in run.ranks], {}))}"
        )
    golden("drawn/ranks-part", "\n".join(lines) + "\n")
