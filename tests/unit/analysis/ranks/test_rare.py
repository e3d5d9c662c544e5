"""What one rank does now and then while the others wait: checkpoints, evaluations; and jobs in which nobody is slow."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collector.format.run import open_run
from collector.format.schema import layout
from profiler_server.analysis.ranks.ranks import summarize_ranks
from profiler_server.analysis.ranks.stragglers import judge_ranks, measure_own
from profiler_server.analysis.ranks.together import choose_steps
from profiler_server.analysis.what_if.pipelines import judge_run, recall_what_if
from profiler_server.diagnosis.limits.facts import MOST_FRAC
from profiler_server.diagnosis.rank_sentences import describe_evidence, describe_straggler
from profiler_server.facts.job import Alike, RankVerdict, Slow
from profiler_server.facts.ranks import Compared
from profiler_server.format import format_duration
from profiler_server.pages.ranks.head import list_stats
from tests.support.jobs import JobPlan, make_job, summarize_job
from tests.support.must import must
from tests.support.row_edits import lay_end_to_end, write_rows
from tests.support.runs import MS, RunPlan, build_run, build_steps

Row = dict[str, Any]
Edit = Callable[[int, list[Row]], list[Row]]
EVERY, LONG = 20, 200 * MS


def judge(path: Path, edit: Edit, ranks: int = 3, steps: int = 165, says_end: bool = False) -> RankVerdict:
    """Judge a job whose steps vary by chance, and in which each rank does what `edit` adds.

    With `says_end` the steps tell when they left their last collective.
    """
    plan = RunPlan(ranks=ranks, steps=steps)
    build_run(path, plan)
    noise = np.random.default_rng(11).exponential(6.0, (ranks, steps)) * MS
    for rank in range(ranks):
        rows = build_steps(plan)
        for at, row in enumerate(rows):
            row["forward_ns"] += int(noise[rank, at])
            row["communication_ns"] += int(noise[:, at].max() - noise[rank, at])
        rows = edit(rank, rows)
        lay_end_to_end(rows)
        for row in rows if says_end else ():
            row["communication_end_ns"] = row["duration_ns"] - row["optimizer_ns"] - row["tail_ns"]
        write_rows(layout.rank_path(path, rank), "steps", rows)
    return judge_ranks(summarize_ranks(open_run(path)))


def save(rank: int, rows: list[Row]) -> list[Row]:
    """Rank 0 saves after each twentieth step, and the others wait in the next one."""
    for before, after in itertools.pairwise(rows):
        if before["step"] % EVERY == 0:
            before["tail_ns"] += LONG if rank == 0 else 0
            after["communication_ns"] += 0 if rank == 0 else LONG
    return rows


def evaluate(rank: int, rows: list[Row], evaluating: tuple[int, ...] = (0,)) -> list[Row]:
    """Some ranks evaluate a batch after each twentieth step, and the others wait in the next one."""
    found: list[Row] = []
    for row in rows:
        if row["step"] % EVERY == 1 and row["step"] > 1:
            if rank in evaluating:
                phases = {name: 0 for name in row if name.endswith("_ns")}
                found.append({**row, **phases, "kind": "eval", "step": row["step"] - 1, "forward_ns": LONG})
            else:
                row["communication_ns"] += LONG
        found.append(row)
    return [{**row, "index": at, "start_ns": rows[0]["start_ns"]} for at, row in enumerate(found)]


def test_the_rank_that_saves_now_and_then_is_named(tmp_path: Path) -> None:
    judged = judge(tmp_path / "run", save)
    assert isinstance(judged, Slow)
    assert judged.culprits == (0,)
    assert judged.comparison.latest.causes[0].name == "tail"
    assert judged.gain_ns == pytest.approx(LONG / EVERY, rel=0.25)
    last, count = judged.longest or (0, 0)
    assert last == count == 8
    assert f"{last} of the {count} in which the others waited by far the longest" in describe_evidence(judged)


def test_checkpoints_are_named_where_they_are_what_the_rank_is_late_by(tmp_path: Path) -> None:
    judge(tmp_path / "run", save)
    run = open_run(tmp_path / "run")
    said = {"id": 0, "name": "torch.save", "path": "torch.save", "thread_id": 1, "start_ns": 0, "failed": False}
    found = must(judge_ranks(summarize_ranks(run)).comparison)
    most_ns = MOST_FRAC * found.latest.causes[0].excess_ns * summarize_ranks(run)[0].steps / 8
    for took_ns, cause in ((0.999 * most_ns, "tail"), (1.001 * most_ns, "saving checkpoints")):
        write_rows(run.rank(0).folder, "ranges", [{**said, "id": n, "duration_ns": int(took_ns)} for n in range(8)])
        judged = judge_run(run, summarize_ranks(open_run(tmp_path / "run")))
        assert f": {cause}." in describe_straggler(judged)


@pytest.mark.parametrize("says_end", [False, True])
def test_the_rank_that_evaluates_while_the_others_wait_is_named(tmp_path: Path, says_end: bool) -> None:
    judged = judge(tmp_path / "run", evaluate, says_end=says_end)
    assert isinstance(judged, Slow)
    assert judged.culprits == (0,)
    assert judged.gain_ns == pytest.approx(LONG / EVERY, rel=0.25)
    assert "work between its steps, such as an evaluation" in describe_straggler(judged)
    ranks = summarize_ranks(open_run(tmp_path / "run"))
    own = measure_own(ranks)
    assert own[0] - own[1] == pytest.approx(LONG / EVERY, rel=0.25)
    shown = {stat.label: stat for stat in list_stats(2, ranks, Compared(judged, own, None))}
    assert shown["Slowest rank"].note.startswith(format_duration(own[0]))  # as the table has it
    run = open_run(tmp_path / "run")
    found = must(recall_what_if(run, summarize_ranks(run)))
    assert abs(found.discrepancy_frac or 1.0) < 0.02
    assert max(found.by_operation or {}, key=lambda name: (found.by_operation or {})[name]) == "between"


def test_ranks_that_evaluate_together_keep_nobody_waiting(tmp_path: Path) -> None:
    judged = judge(tmp_path / "run", lambda rank, rows: evaluate(rank, rows, (0, 1, 2)))
    assert judged.comparison is not None
    assert judged.culprits == ()
    assert judged.comparison.latest.late_frac < 0.03


@pytest.mark.parametrize("ranks", [2, 3])
def test_few_ranks_that_vary_a_little_are_alike_and_the_least_slowdown_is_said(ranks: int) -> None:
    judged = judge_ranks(summarize_job(make_job(JobPlan(ranks=ranks, steps=100, noise_frac=0.1))))
    assert isinstance(judged, Alike)
    assert "would be named" in describe_straggler(judged)


@pytest.mark.parametrize("distance", [64, 100, 128, 200])
def test_what_comes_at_a_regular_distance_is_chosen_as_often_as_the_rest(distance: int) -> None:
    step = np.arange(1, 20_001)
    chosen = choose_steps(step, 8)
    assert chosen.mean() == pytest.approx(1 / 8, rel=0.02)
    assert chosen[step % distance == 0].mean() == pytest.approx(1 / 8, rel=0.15)
    assert (choose_steps(step, 16) & ~chosen).sum() == 0
