"""Jobs in which not one rank is always the last: a change in the middle, a single long wait, turns and their reason."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from collector.format.run import open_run
from profiler_server.analysis.ranks.calls import Calls
from profiler_server.analysis.ranks.patterns import find_stretch
from profiler_server.analysis.ranks.ranks import summarize_ranks
from profiler_server.analysis.ranks.stragglers import judge_ranks, measure_own
from profiler_server.diagnosis.rank_sentences import describe_evidence, describe_straggler
from profiler_server.facts.job import Alike, Handover, RankVerdict, Slow, Turns
from profiler_server.format import say
from profiler_server.report.brief import write_brief
from tests.support.machines import build_edited
from tests.support.must import must
from tests.support.row_edits import Row
from tests.support.runs import MS, RunPlan

STEPS = 120
Later = np.ndarray
"""What each rank does longer in each step, in ms: (ranks, steps)."""


def record(path: Path, later: Later, phase: str = "h2d", noise_ms: float = 1.0) -> Path:
    """Record a job whose ranks do something longer in some steps, for which the others wait in the same step."""
    ranks, steps = later.shape
    plan = RunPlan(ranks=ranks, steps=steps)
    noise = np.random.default_rng(5).exponential(noise_ms, later.shape) * MS
    own = later * MS + noise

    def edit(rank: int, rows: list[Row]) -> None:
        for at, row in enumerate(rows):
            row[f"{phase}_ns"] += int(later[rank, at] * MS)
            row["forward_ns"] += int(noise[rank, at] / 2)
            row["backward_ns"] += int(noise[rank, at] / 2)
            row["communication_ns"] += int(own[:, at].max() - own[rank, at])

    return build_edited(path, plan, edit)


def judge(path: Path, starved_frac: float = 0.0) -> RankVerdict:
    return judge_ranks([replace(rank, starved_frac=starved_frac) for rank in summarize_ranks(open_run(path))])


def hand_over(ranks: int, at: int) -> Later:
    later = np.zeros((ranks, STEPS))
    later[0, :at] = later[ranks - 1, at:] = 40.0
    return later


@pytest.mark.parametrize(
    ("late", "first", "last", "words"),
    [
        (slice(70, None), 71, STEPS, "From step 71 on it is late by"),
        (slice(None, 60), 3, 60, "Up to step 60 it was late by"),
    ],
)
def test_a_rank_that_is_slow_in_a_part_of_the_run_is_told_with_the_step(
    tmp_path: Path, late: slice, first: int, last: int, words: str
) -> None:
    later = np.zeros((3, STEPS))
    later[1, late] = 40.0
    path = record(tmp_path / "run", later)
    judged = judge(path)
    assert isinstance(judged, Slow)
    assert judged.stretch is not None
    assert (judged.culprits, judged.stretch.first, judged.stretch.last) == ((1,), first, last)
    assert judged.stretch.late_ns == pytest.approx(40 * MS, rel=0.05)
    assert judged.gain_ns == pytest.approx(40 * MS * (last - first + 1) / STEPS, rel=0.1)
    assert any(words in line for line in write_brief(open_run(path)))


@pytest.mark.parametrize("noise", [0.1, 1.0, 4.0])
def test_a_rank_that_is_slow_throughout_has_no_part(noise: float) -> None:
    random = np.random.default_rng(7)
    against = 40.0 + 40.0 * noise * random.standard_normal((500, STEPS))
    assert not any(find_stretch(np.arange(STEPS), row * MS, 100.0 * MS) for row in against)


@pytest.mark.parametrize("is_from_start", [True, False])
def test_single_steps_that_are_late_by_far_more_do_not_hide_since_when_a_rank_is_slow(is_from_start: bool) -> None:
    """On a busy host some steps are late, or early, by many times the difference."""
    random = np.random.default_rng(7)
    for _ in range(20):
        against = 3.0 * random.standard_normal(STEPS)
        against[slice(None, 60) if is_from_start else slice(60, None)] += 25.0
        against[10::20] += 400.0 * random.choice([-1.0, 1.0], len(against[10::20]))
        found = find_stretch(np.arange(1, STEPS + 1), against * MS, 60.0 * MS)
        assert found is not None
        assert found.is_from_start == is_from_start
        assert found.late_ns == pytest.approx(25 * MS, rel=0.15)
        assert abs((found.last if is_from_start else found.first - 1) - 60) <= 2


@pytest.mark.parametrize(
    ("is_from_start", "words"),
    [
        (False, "From a step after 40, at the latest from 81 on, it is late by 40."),
        (True, "Up to a step before 81, at least up to 40, it was late by 40."),
    ],
)
def test_a_change_between_steps_that_were_not_judged_is_given_with_both_sides(is_from_start: bool, words: str) -> None:
    """Steps beside the reading of a detailed window are not judged. An even step at their edge moves nothing."""
    steps = np.concatenate([np.arange(1, 41), np.arange(81, 121)])
    against = np.where((steps > 40) ^ is_from_start, 40.0, 0.0) + 0.1 * (steps % 3)
    for middle in (40, 81):
        found = find_stretch(steps, np.where(steps == middle, 20.0, against) * MS, 100.0 * MS)
        assert found is not None
        assert (found.last, found.in_time) == ((40, 81) if is_from_start else (120, 40))
        assert (found.first, found.is_exact) == (1 if is_from_start else 81, False)
    exact = find_stretch(np.arange(1, 81), against * MS, 100.0 * MS)
    assert exact is not None
    assert exact.is_exact
    assert found is not None
    text = say("ranks", "slow_up_to_between" if is_from_start else "slow_from_between", stretch=found, noun="step")
    assert text.startswith(words)


@pytest.mark.parametrize(("ranks", "at"), [(2, 60), (3, 40)])
def test_a_rank_that_is_slow_until_another_is_is_told_with_the_step(tmp_path: Path, ranks: int, at: int) -> None:
    path = record(tmp_path / "run", hand_over(ranks, at))
    judged = judge(path)
    assert isinstance(judged, Handover)
    assert (judged.step, judged.culprits) == (at + 1, (0, ranks - 1))
    assert judged.before_ns == pytest.approx(40 * MS, rel=0.05)
    assert judged.after_ns == pytest.approx(40 * MS, rel=0.05)
    assert judged.gain_ns == pytest.approx(40 * MS, rel=0.1)
    assert f"Before step {at + 1} rank 0 held" in describe_straggler(judged)
    assert "It was the last" not in describe_evidence(judged)
    assert any("from then on." in line for line in write_brief(open_run(path)))


def test_one_rank_that_is_slow_for_good_or_from_the_middle_on_is_no_change_of_ranks(tmp_path: Path) -> None:
    later = hand_over(3, 60)
    later[0] = 0.0
    judged = judge(record(tmp_path / "run", later))
    assert isinstance(judged, Slow)
    assert judged.culprits == (2,)


def test_one_long_wait_is_told_by_itself_and_makes_nobody_slow(tmp_path: Path) -> None:
    later = np.zeros((3, STEPS))
    later[1, 70] = 7_000.0
    path = record(tmp_path / "run", later, "tail")
    judged = judge(path)
    assert isinstance(judged, Alike)
    pause = must(judged.comparison.pause)
    assert (pause.rank, pause.step, pause.count) == (1, 71, 1)
    assert pause.waited_ns == pytest.approx(7_000 * MS, rel=0.01)
    assert judged.comparison.step_ns < 100 * MS
    assert "At step 71 rank 1 held 2 others up 7.00 s: tail." in describe_straggler(judged)
    assert any("At step 71 rank 1 held" in line for line in write_brief(open_run(path)))


def test_a_rank_that_is_slow_in_every_step_stays_so_beside_a_long_wait_for_another(tmp_path: Path) -> None:
    later = np.zeros((3, STEPS))
    later[1, 70] = 9_000.0
    later[2] = 20.0
    ranks = summarize_ranks(open_run(record(tmp_path / "run", later, "tail")))
    judged = judge_ranks(ranks)
    assert isinstance(judged, Slow)
    assert judged.culprits == (2,)
    assert judged.gain_ns == pytest.approx(20 * MS, rel=0.1)
    pause, latest = judged.comparison.pause, judged.comparison.latest
    assert pause is not None
    assert pause.rank == 1
    own = measure_own(ranks, pause)
    assert own[1] == pytest.approx(own[0], abs=2 * MS)
    assert own[2] - own[0] == pytest.approx(20 * MS, abs=2 * MS)
    assert latest.own_ns - latest.others_ns == pytest.approx(20 * MS, abs=2 * MS)
    assert latest.phase_ns < 60 * MS


def test_waits_that_come_again_and_again_are_no_single_ones(tmp_path: Path) -> None:
    later = np.zeros((3, STEPS))
    later[1, 5::20] = 300.0
    judged = judge(record(tmp_path / "run", later))
    assert isinstance(judged, Slow)
    assert judged.comparison.pause is None
    assert judged.culprits == (1,)


def take_turns(ranks: int) -> Later:
    return np.where(np.arange(STEPS) % ranks == np.arange(ranks)[:, None], 40.0, 0.0)


def test_turns_in_one_phase_are_told_where_processors_are_short_too(tmp_path: Path) -> None:
    path = record(tmp_path / "run", take_turns(3))
    judged = judge(path, starved_frac=0.5)
    assert isinstance(judged, Turns)
    assert judged.is_one_phase
    assert "preparation or copy of the batch" in describe_straggler(judged)
    assert any("take turns" in line for line in write_brief(open_run(path)))


def test_turns_of_ranks_that_lack_processors_are_put_down_to_that(tmp_path: Path) -> None:
    free = judge(record(tmp_path / "free", np.zeros((3, STEPS)), noise_ms=12.0))
    judged = judge(record(tmp_path / "run", np.zeros((3, STEPS)), noise_ms=12.0), starved_frac=0.6)
    assert isinstance(free, Turns)
    assert "no free processor" not in describe_straggler(free)
    assert isinstance(judged, Turns)
    assert [cause.name for cause in judged.causes] == ["no_processor"]
    assert "for the last one: no free processor." in describe_straggler(judged)


def test_collectives_in_which_nobody_waits_do_not_hide_who_is_waited_for(tmp_path: Path) -> None:
    """`Join` begins a small one in each step and waits for it in C++: the gradients are where the ranks wait."""
    later = np.zeros((3, STEPS))
    later[2] = 40.0
    path = record(tmp_path / "run", later)
    step = np.arange(1, STEPS + 1)
    ranks = []
    for rank in summarize_ranks(open_run(path)):
        short = np.full(STEPS, MS // 10)
        calls = Calls(
            (("", "allreduce"),), 0 * step, step, step, 0 * step, step * 100 * MS, short, short, short, 3 + 0 * step
        )
        ranks.append(replace(rank, calls=calls))
    judged = judge_ranks(ranks)
    assert isinstance(judged, Slow)
    assert (judged.comparison.source, judged.culprits) == ("steps", (2,))
    assert judged.gain_ns == pytest.approx(40 * MS, rel=0.05)
