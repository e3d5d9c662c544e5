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
from profiler_server.facts.ranks import JobSlowdown
from profiler_server.pages.ranks.head import say_slowdown, view_what_if
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
    assert [choice.query["map"] for choice in shown.choices if choice.current] == [figure]
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


def test_a_slow_rank_is_named_with_what_mending_it_gains() -> None:
    found = JobSlowdown(
        slowdown=1.25,
        waste_frac=0.2,
        discrepancy_frac=0.01,
        by_rank={0: 1.0, 3: 1.25},
        by_operation={"data_wait": 1.2, "forward": 1.01},
        mend_rank_gain_ns={0: 10.0, 3: 20e6},
        method="replay",
    )
    view = view_what_if(found)
    assert view is not None
    assert "20.0 % shorter (slowdown 1.25). Rank 3 alone at that mean gains 20.0 ms a step." in view.sentence
    assert [(row.name, row.gain) for row in view.ranks] == [("rank 3", "20.0 ms"), ("rank 0", "nothing")]
    assert [row.name for row in view.operations] == ["Data wait", "Forward"]
    assert view.ranks[0].loss_frac == 1.0


def test_the_panel_has_no_gains_where_ranks_meet_in_each_step() -> None:
    found = JobSlowdown(slowdown=1.25, waste_frac=0.2, by_rank={3: 1.25}, method="steps")
    view = view_what_if(found)
    assert view is not None
    assert not view.has_gain
    assert "alone" not in view.sentence


def test_an_even_job_has_nothing_to_mend() -> None:
    found = JobSlowdown(slowdown=1.001, waste_frac=0.001, discrepancy_frac=0.0, mend_rank_gain_ns={0: 1e6})
    assert "as long as it is" in say_slowdown(found)
    assert "alone at that mean" not in say_slowdown(found)


def test_communication_that_varies_is_told_apart_from_unlike_ranks() -> None:
    # As measured 125 ms; with even ranks 120 ms, and with the communication of the median step as well 100 ms.
    found = JobSlowdown(slowdown=1.25, waste_frac=0.2, by_operation={"forward": 1.05, "communication": 1.2})
    said = say_slowdown(found)
    assert (
        "the step would be 4.0 % shorter; if communication took as long as in the median step as well, 20.0 %" in said
    )


def test_a_last_stage_that_is_too_heavy_is_named() -> None:
    found = JobSlowdown(slowdown=1.2, waste_frac=0.17, discrepancy_frac=0.0, stage_share=0.9)
    assert "The last stage accounts for 90.0 % of the loss" in say_slowdown(found)
    # Mended alone it gains more than all ranks at the mean: the others have less work then.
    more = JobSlowdown(slowdown=1.2, waste_frac=0.17, discrepancy_frac=0.0, stage_share=1.22)
    assert "The last stage accounts for all of the loss" in say_slowdown(more)


def test_without_figures_the_reason_is_shown() -> None:
    view = view_what_if(JobSlowdown(reason="Working and waiting cannot be told apart."))
    assert view is not None
    assert (view.reason, view.ranks) == ("Working and waiting cannot be told apart.", ())
    assert view_what_if(None) is None


def test_ranks_that_slow_nothing_down_are_one_line_and_equal_ones_stand_in_their_order() -> None:
    ranks = dict.fromkeys(range(64), 1.0) | {30: 1.2, 4: 1.01, 20: 1.01}
    view = view_what_if(JobSlowdown(slowdown=1.3, waste_frac=0.2, discrepancy_frac=0.0, by_rank=ranks, method="steps"))
    assert view is not None
    assert [(row.name, row.slowdown) for row in view.ranks] == [
        ("rank 30", "1.200"),
        ("rank 4", "1.010"),
        ("rank 20", "1.010"),
        ("61 others", "1.000"),
    ]
