"""The graph of a step: its stretches as recorded, or its phases one after the other, always as long as the step."""

from __future__ import annotations

from pathlib import Path

from collector.format.run import open_run
from collector.format.schema import layout
from collector.format.steps import summarize_phases
from profiler_server.analysis.steps.step_graph import average_graph, trace_step
from tests.support.runs import RunPlan, build_run


def test_a_recorded_step_has_its_stretches_end_to_end(tmp_path: Path) -> None:
    rank = open_run(build_run(tmp_path / "run")).rank(0)
    graph = trace_step(rank, rank.table("steps"), 5)
    assert graph is not None
    assert graph.measured
    at = 0.0
    for stretch in graph.stretches:
        assert stretch.start_ns == at
        at += stretch.duration_ns
    assert at == graph.duration_ns


def test_a_step_without_recorded_stretches_is_laid_out_by_phase(tmp_path: Path) -> None:
    rank = open_run(build_run(tmp_path / "run")).rank(0)
    layout.table_file(rank.folder, "phases").unlink()
    graph = trace_step(rank, rank.table("steps"), 5)
    assert graph is not None
    assert not graph.measured
    assert sum(s.duration_ns for s in graph.stretches) == graph.duration_ns


def test_there_is_no_graph_of_a_step_that_was_not_recorded(tmp_path: Path) -> None:
    rank = open_run(build_run(tmp_path / "run")).rank(0)
    assert trace_step(rank, rank.table("steps"), 41) is None


def test_the_average_is_as_long_as_the_mean_step(tmp_path: Path) -> None:
    rank = open_run(build_run(tmp_path / "run", RunPlan(steps=60))).rank(0)
    phases = summarize_phases(rank.table("steps"))
    graph = average_graph(phases)
    assert graph.duration_ns == sum(p.mean_ns for p in phases)
    assert [s.phase for s in graph.stretches] == [p.name for p in phases if p.mean_ns]
