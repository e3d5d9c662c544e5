"""Which step the Step trace shows: the average, one of them, or a range."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from collector.format.parts import build_table, write_table
from collector.format.phases import PHASE_NAMES
from collector.format.run import open_run
from collector.format.schema import layout
from profiler_server.pages.steps.charts import CHART_NAMES, build_figure, narrow, read_step_data
from tests.support.runs import MS, RunPlan, build_run
from tests.support.steps_page import show


def test_any_step_can_be_picked_and_has_neighbours(tmp_path: Path) -> None:
    trace = show(build_run(tmp_path / "run"), step="5")
    assert trace.graph.title == "Step 5"
    assert (trace.picker.previous, trace.picker.next) == (4, 6)
    assert trace.start_ns is not None
    assert trace.end_ns is not None
    assert trace.end_ns > trace.start_ns


def test_the_first_and_the_last_step_have_one_neighbour(tmp_path: Path) -> None:
    run = build_run(tmp_path / "run")
    assert show(run, step="1").picker.previous is None
    assert show(run, step="40").picker.next is None


@pytest.mark.parametrize("wanted", ["0", "41", "-3", "4.5", "x", "²", "9" * 400, "<script>"])
def test_a_bad_number_gives_an_error_and_the_average(tmp_path: Path, wanted: str) -> None:
    trace = show(build_run(tmp_path / "run"), step=wanted)
    assert "steps 1 to 40" in trace.picker.error
    assert trace.graph.title == "Average step"
    assert len(trace.picker.error) < 200


def test_zooming_in_shows_single_steps_of_the_range(tmp_path: Path) -> None:
    data = read_step_data(open_run(build_run(tmp_path / "run", RunPlan(steps=600))).rank(0))
    whole, near = build_figure("phases", data), build_figure("phases", narrow(data, 100, 120))
    assert whole["data"][0]["width"] > 1
    assert near["data"][0]["width"] == 1
    assert near["data"][0]["x"] == list(range(100, 121))
    assert build_figure("duration", narrow(data, 9_000, 9_100))["data"][-1]["x"] == []


def test_a_run_of_100_000_steps_has_a_small_page(tmp_path: Path) -> None:
    run = build_run(tmp_path / "run", RunPlan(steps=2))
    count = 100_000
    noise = np.random.default_rng(1).integers(0, 5 * MS, count)
    parts = {f"{name}_ns": np.full(count, MS) + (noise if name == "data_wait" else 0) for name in PHASE_NAMES}
    duration = sum(parts.values())
    zeros = np.zeros(count, dtype=np.int64)
    counts = dict.fromkeys(("fetches", "forwards", "backwards", "optimizer_steps"), zeros + 1)
    columns = {
        "index": np.arange(count),
        "step": np.arange(1, count + 1),
        "kind": ["train"] * count,
        "start_ns": np.cumsum(duration) - duration,
        "duration_ns": duration,
        **parts,
        **counts,
        **dict.fromkeys(("skipped_updates", "loader_start_ns", "gc_ns"), zeros),
        **dict.fromkeys(("detailed", "markers"), zeros.astype(bool)),
    }
    write_table(build_table("steps", columns), layout.table_file(layout.rank_path(run, 0), "steps"))
    trace = show(run, step="77777")
    assert sum(len(json.dumps(chart.figure)) for chart in trace.charts) < 200_000
    assert max(len(chart.rows) for chart in trace.charts) <= 40
    assert {chart.source for chart in trace.charts} <= set(CHART_NAMES)
