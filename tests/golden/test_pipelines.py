"""Whom a pipeline waits for: published jobs in which one stage is too heavy, or one worker too slow."""

from __future__ import annotations

from pathlib import Path

import pytest

from collector.format.run import Run
from collector.traces.importing import import_trace
from profiler_server.analysis.ranks.ranks import summarize_ranks
from profiler_server.analysis.what_if.pipelines import judge_run, recall_what_if
from profiler_server.diagnosis.judging import diagnose
from profiler_server.diagnosis.rank_sentences import describe_straggler
from profiler_server.facts.job import HeavyStage, Slow, UnevenWork
from profiler_server.facts.results import Suggestion
from profiler_server.report.building import build_report
from profiler_server.report.text import render_text
from tests.golden.test_what_if import CARRIED, LARGE

UNEVEN = LARGE.with_name("trace-SE.parquet")


@pytest.fixture(scope="module")
def heavy(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Two replicas of four stages, of which the last has the most work."""
    return import_trace(CARRIED, tmp_path_factory.mktemp("runs") / "job")


def advise(run: Run, rank: int) -> dict[str, Suggestion]:
    return {entry.rule: entry for entry in diagnose(run, rank).suggestions}


def test_the_heavy_stage_is_named_and_no_rank(heavy: Run) -> None:
    judged, found = judge_run(heavy, summarize_ranks(heavy)), recall_what_if(heavy, summarize_ranks(heavy))
    assert isinstance(judged, HeavyStage)
    assert found is not None
    assert (judged.stage, judged.culprits, judged.comparison.stages) == (3, (6, 7), 4)
    assert judged.own_ns > 1.5 * judged.others_ns
    assert judged.gain_ns / judged.comparison.step_ns == pytest.approx(found.even_stages_frac)
    # Not the whole waste: what varies within the stages stays.
    assert (found.even_stages_frac, found.even_work_frac) == pytest.approx((0.135, 0.001), abs=0.001)
    assert describe_straggler(judged).startswith("Stage 3 of the pipeline (ranks 6, 7) computes 1.42 s a step")
    report = build_report(heavy)
    told = report["judgement"]
    assert (told["verdict"], told["heavy_stage"]["ranks"]) == ("heavy_stage", [6, 7])
    assert told["sentence"] == describe_straggler(judged)
    text = render_text(report, heavy)
    assert f"Ranks\n  {told['sentence']}\n" in text
    assert text.splitlines()[2].startswith(told["sentence"])


@pytest.mark.parametrize("rank", [0, 7])
def test_every_rank_is_advised_to_move_layers_and_none_to_hide_communication(heavy: Run, rank: int) -> None:
    said = advise(heavy, rank)
    judged = judge_run(heavy, summarize_ranks(heavy))
    assert judged.comparison is not None
    assert not {"exposed_all_reduce", "fixed_straggler", "rotating_straggler"} & set(said)
    assert said["uneven_stages"].predicted_step_ns == pytest.approx(
        judged.comparison.step_ns - judged.gain_ns, rel=0.01
    )


@pytest.mark.skipif(not LARGE.is_file(), reason="the sample is not on this machine")
def test_a_slow_worker_is_told_from_a_heavy_stage_and_gains_what_its_replay_does(tmp_path: Path) -> None:
    run = import_trace(LARGE, tmp_path / "job")
    judged, found = judge_run(run, summarize_ranks(run)), recall_what_if(run, summarize_ranks(run))
    assert isinstance(judged, Slow)
    assert found is not None
    assert judged.culprits == (0,)
    assert judged.gain_ns == pytest.approx((found.mend_rank_gain_ns or {})[0])
    # No rank alone gives back more than all of them together.
    assert judged.gain_ns <= (found.waste_frac or 0.0) * judged.comparison.step_ns


@pytest.mark.skipif(not UNEVEN.is_file(), reason="the sample is not on this machine")
def test_sequences_of_unlike_length_are_no_heavy_stage(tmp_path: Path) -> None:
    """Moving layers would gain 2 % of this job, batches of like lengths 26 %."""
    run = import_trace(UNEVEN, tmp_path / "job")
    judged, found = judge_run(run, summarize_ranks(run)), recall_what_if(run, summarize_ranks(run))
    assert isinstance(judged, UnevenWork)
    assert found is not None
    assert (found.even_stages_frac, found.even_work_frac) == pytest.approx((0.021, 0.256), abs=0.001)
    assert judged.gain_ns == pytest.approx(found.even_work_frac * judged.comparison.step_ns)
    assert (judged.comparison.uneven_correlation or 0.0) > 0.95
    said = advise(run, 0)
    assert "uneven_stages" not in said
    assert "LikeLengths" in said["rotating_straggler"].change
    assert said["rotating_straggler"].predicted_step_ns == pytest.approx(
        judged.comparison.step_ns - judged.gain_ns, rel=0.02
    )
