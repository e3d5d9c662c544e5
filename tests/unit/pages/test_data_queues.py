"""The queues of the Data pipeline page: how full they are, who waits at them, and what is said of it."""

from __future__ import annotations

from pathlib import Path

from tests.support.data_page import show_interval, show_processing
from tests.support.runs import HEALTHY_STEP_MS, RunPlan, build_run, slow_loader_plan
from tests.support.tables import sample, write_rows


def test_empty_steps_are_counted_and_marked(tmp_path: Path) -> None:
    view = show_interval(build_run(tmp_path / "run", slow_loader_plan("transform")))
    queue = view.queues[0]
    assert (queue.empty, queue.is_starved) == ("empty in 30 of 40 requests", True)
    marks = next(trace for trace in queue.chart.figure["data"] if trace["mode"] == "markers")
    assert len(marks["x"]) == 30


def test_without_a_pin_queue_the_host_queue_is_what_the_step_reads(tmp_path: Path) -> None:
    host_only = show_interval(build_run(tmp_path / "a", RunPlan()))
    pinned = show_interval(build_run(tmp_path / "b", RunPlan(pin_memory=True)))
    assert "no pin queue" in host_only.queues[0].role
    assert [queue.title for queue in pinned.queues] == ["Worker queue", "Pin queue"]
    assert pinned.queues[1].role.startswith("Device side")


def test_queues_are_read_by_their_two_sides(tmp_path: Path) -> None:
    run = build_run(tmp_path / "run", RunPlan(pin_memory=True))
    both_dry = [sample(s, 0, queue=name) for s in range(1, 41) for name in ("worker_queue", "pin_queue")]
    write_rows(run, "queues", both_dry)
    assert show_interval(run).readings[0].title == "The processing is the limit"
    write_rows(run, "queues", [{**row, "depth": 4 if row["queue"] == "worker_queue" else 0} for row in both_dry])
    assert show_interval(run).readings[0].title == "The transfer is the limit"


def test_a_queue_that_holds_only_later_batches_is_told(tmp_path: Path) -> None:
    run = build_run(tmp_path / "run", RunPlan())
    write_rows(run, "queues", [sample(s, 2, next_ready=s > 20, out_of_order=2) for s in range(1, 41)])
    titles = [reading.title for reading in show_interval(run).readings]
    assert "Batches wait for an earlier one" in titles


def test_a_queue_opens_to_its_depth_over_time_with_both_sides(tmp_path: Path) -> None:
    run = build_run(tmp_path / "run", RunPlan(pin_memory=True))
    panel = show_processing(run, queue="worker_queue").panel
    assert panel is not None
    assert (panel.before, panel.after) == ("2 worker processes", "1 pin-memory thread")
    assert "40 requests" in panel.chart.caption
    assert show_processing(run, queue="nope").panel_missing == "This loader has no queue 'nope'."


def test_a_wait_beside_a_full_queue_is_blamed_on_receiving_the_batch(tmp_path: Path) -> None:
    plan = RunPlan(phases_ms={**HEALTHY_STEP_MS, "data_wait": 8.0})
    view = show_interval(build_run(tmp_path / "run", plan))
    assert view.verdict.title == "Receiving batches takes long"
    # The other reading, "Limited by receiving batches", gives the reason that the verdict gives.
    assert [entry.title for entry in view.readings] == ["Batches are ready, yet receiving one takes long"]


def test_an_empty_queue_and_a_missing_batch_are_told_apart(tmp_path: Path) -> None:
    run = build_run(tmp_path / "run")
    rows = [sample(step, int(step > 4), next_ready=step > 2, out_of_order=0) for step in range(1, 9)]
    write_rows(run, "queues", rows)
    facts = {figure.label: figure for figure in show_interval(run).queues[0].facts}
    assert facts["Empty"].value == "50.0 %"
    assert facts["Empty"].note.startswith("of 8 requests")
    assert facts["Next not ready"].value == "25.0 %"
