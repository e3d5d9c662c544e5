"""The maps of what each rank held and computed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from collector.format import parts
from collector.format.phases import PHASE_NAMES
from collector.format.run import open_run
from collector.format.schema import layout
from profiler_server.analysis.ranks.grids import grid_figure, grid_steps
from profiler_server.analysis.ranks.ranks import summarize_ranks
from profiler_server.analysis.ranks.together import read_track
from profiler_server.pages.ranks.pictures import FIGURES, StepMap
from tests.support.jobs import STEP_NS, JobPlan, write_job
from tests.support.ranks_page import show_ranks
from tests.support.row_edits import process_memory
from tests.support.runs import RunPlan, build_operators, build_run, build_steps

GIB = float(1 << 30)


def write_memory(path: Path, rank: int, *levels: float) -> None:
    table = parts.build_table_from_rows("resources", process_memory(*levels))
    parts.write_table(table, layout.table_file(layout.rank_path(path, rank), "resources"))


def draw(path: Path, figure: str) -> StepMap:
    found = show_ranks(open_run(path), {"map": figure}).comparison
    assert found is not None
    return found.map


def test_the_memory_of_every_rank_is_drawn_where_it_was_sampled(tmp_path: Path) -> None:
    path = build_run(tmp_path / "run", RunPlan(ranks=2, operators=False))
    write_memory(path, 0, GIB, GIB, GIB)
    write_memory(path, 1, GIB, 3 * GIB, 3 * GIB)
    memory = draw(path, "memory")
    assert memory.title == "Memory, step by step"
    assert "from 1.00 GiB (pale) to 3.00 GiB." in memory.caption
    assert {text for text in memory.data["texts"][0] if text} == {"1.00 GiB"}
    assert "3.00 GiB" in memory.data["texts"][1]


def test_the_flops_of_every_rank_are_drawn_for_the_detailed_windows(tmp_path: Path) -> None:
    plan = RunPlan(ranks=2)
    path = build_run(tmp_path / "run", plan)
    for rank in range(2):
        rows = [row | {"flops": 1e9 * (rank + 1)} for row in build_operators(build_steps(plan))]
        table = parts.build_table_from_rows("operators", rows)
        parts.write_table(table, layout.table_file(layout.rank_path(path, rank), "operators"))
    flops = draw(path, "flops")
    assert flops.title == "FLOPs, step by step"
    assert flops.data["first"] == [10, 11, 12]
    assert all(text.endswith("FLOP") for row in flops.data["texts"] for text in row)


def test_one_rank_that_was_sampled_is_no_comparison(tmp_path: Path) -> None:
    path = build_run(tmp_path / "run", RunPlan(ranks=2, operators=False))
    write_memory(path, 0, GIB)
    memory = draw(path, "memory")
    assert memory.heat is None
    assert "not recorded" in memory.caption


def test_ranks_without_samples_or_steps_stay_empty(tmp_path: Path) -> None:
    path = build_run(tmp_path / "run", RunPlan(ranks=4, operators=False))
    write_memory(path, 0, GIB)
    write_memory(path, 1, GIB)
    first, second, unsampled, last = summarize_ranks(run := open_run(path))
    ranks = (first, second, unsampled, replace(last, steps=0))
    found = grid_figure(run, ranks, ranks, "memory")
    assert found is not None
    assert np.isfinite(found.values).any(axis=1).tolist() == [True, True, False, False]


@pytest.mark.parametrize("figure", sorted({*FIGURES} - {"memory", "busy", "flops"}))
def test_every_figure_of_the_steps_has_a_row_for_each_rank(tmp_path: Path, figure: str) -> None:
    shown = draw(write_job(tmp_path / "run", JobPlan(ranks=3, steps=12, slow=(1,), slow_frac=0.3)), figure)
    assert shown.chosen == figure
    assert shown.heat is not None
    assert shown.data["ranks"] == [0, 1, 2]


def test_the_waiting_of_a_rank_is_for_the_one_that_comes_last(tmp_path: Path) -> None:
    path = write_job(tmp_path / "run", JobPlan(ranks=3, steps=12, slow=(1,), slow_frac=0.3, noise_frac=0.0))
    waits = np.array(draw(path, "wait").data["values"])
    assert waits[1].max() == 0
    assert waits[[0, 2]].min() == pytest.approx(0.3 * STEP_NS, rel=0.01)


def test_a_long_run_is_drawn_by_stretches_that_all_ranks_share() -> None:
    tracks = {rank: read_track(make_steps(first, 1000)) for rank, first in ((0, 1), (1, 301))}
    grid = grid_steps(tracks, "step", 160)
    assert grid.size == 16
    assert grid.values.shape == (2, 82)
    assert np.isnan(grid.values[1, :18]).all()
    assert np.nanmax(grid.values) == pytest.approx(np.nanmin(grid.values), rel=0.01)


def make_steps(first: int, count: int) -> pa.Table:
    number = np.arange(first, first + count)
    phases = {f"{name}_ns": np.full(count, 1_000) for name in PHASE_NAMES}
    return pa.table({"step": number, "samples": np.ones(count, np.int32), **phases})
