"""The Data pipeline page as a context: what a person reads, in every state."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from collector.format.run import open_run
from collector.format.schema.manifest import Loader, Signal
from profiler_server.report import build_report
from tests.support.data_page import NO_WORKERS, label_queues, open_data_page, show_interval, show_processing
from tests.support.live import edit_rank
from tests.support.runs import HEALTHY_STEP_MS, MS, RunPlan, build_run, slow_loader_plan
from tests.support.tables import make_inference, remove_tables, sample, stage, write_rows


@pytest.mark.parametrize("slow", ["read", "transform", "collate"])
def test_the_slow_stage_is_named_on_both_tabs(tmp_path: Path, slow: str) -> None:
    run = build_run(tmp_path / "run", slow_loader_plan(slow))
    assert f"Limited by {slow}" in [reading.title for reading in show_interval(run).readings]
    view = show_processing(run)
    assert view.lead.title == f"Limited by {slow}"
    marked = [box.name for node in view.graph if node.kind == "lane" for box in node.stages if box.is_bottleneck]
    assert marked == [slow]


def test_a_healthy_run_names_no_stage(tmp_path: Path) -> None:
    run = build_run(tmp_path / "run", RunPlan())
    assert show_interval(run).verdict.title == "Not input-bound"
    assert show_processing(run).lead.title == "No stage holds the step up"


def test_work_of_the_training_process_and_its_waits_are_shares_of_one_step(tmp_path: Path) -> None:
    """Without workers read, transform and collate are what the step waits for, and have its base on every page."""
    waits = {**HEALTHY_STEP_MS, "data_wait": 34.0}
    run = build_run(tmp_path / "run", RunPlan(workers=0, phases_ms=waits))
    works = (("read", 0, 10), ("transform", 10, 20), ("collate", 30, 3))
    rows = [
        stage(name, replica=-1, batch=row["step"], start_ns=row["start_ns"] + at * MS, duration_ns=length * MS)
        for row in open_run(run).rank().table("steps").to_pylist()
        for name, at, length in works
    ]
    write_rows(run, "stages", rows)
    (lane,) = show_processing(run).graph
    assert lane.kind == "lane"
    shown = {box.name: {share.label: share.percent for share in box.shares} for box in lane.stages}
    making = sum(shown[name]["busy"] for name in ("read", "transform", "collate"))
    assert making == pytest.approx(100 * 33.0 / sum(waits.values()), rel=0.02)
    assert making <= shown["step"]["waits for input"]
    reported = {row["name"]: row["busy_frac"] for row in build_report(open_run(run))["ranks"][0]["stages"]}
    assert all(round(100 * reported[name], 2) == shown[name]["busy"] for name, *_ in works)


def test_the_graph_follows_a_batch_from_read_to_step(tmp_path: Path) -> None:
    run = build_run(tmp_path / "run", RunPlan(pin_memory=True))
    view = show_processing(run)
    loading = ["Read", "Transform", "Collate", "Worker queue", "Pin", "Pin queue"]
    assert label_queues(view) == [*loading, "Host-to-device", "Step"]
    assert view.graph[0].kind == "lane"
    assert view.graph[0].title == "2 worker processes"


def test_each_worker_has_a_bar_of_work_and_waits(tmp_path: Path) -> None:
    workers = show_processing(build_run(tmp_path / "run", RunPlan(workers=3))).workers
    assert [worker.label for worker in workers] == ["Worker 0", "Worker 1", "Worker 2"]
    assert {segment.kind for segment in workers[0].segments} <= {"work", "input_wait", "output_wait", "setup", "other"}
    assert all(segment.start + segment.width <= 100.01 for worker in workers for segment in worker.segments)


def test_transforms_and_slow_samples_are_named(tmp_path: Path) -> None:
    run = build_run(tmp_path / "run", RunPlan())
    rows = [
        stage("transform", detail="Resize", duration_ns=30_000_000, cpu_ns=15_000_000),
        stage("transform", detail="Normalize", duration_ns=10_000_000),
        stage("read", longest_ns=9_000_000, longest_item=17),
    ]
    write_rows(run, "stages", rows)
    view = show_processing(run)
    assert view.transforms is not None
    assert view.slow_items is not None
    assert [row[:4] for row in view.transforms.rows] == [
        ("Resize", "30.0 ms", "75.0 %", "50.0 %"),
        ("Normalize", "10.0 ms", "25.0 %", "n/a"),
    ]
    assert view.slow_items.rows[0][:3] == ("dataset[17]", "Read", "9.00 ms")


def test_a_loader_that_feeds_no_step_has_none_of_their_waits(tmp_path: Path) -> None:
    run = build_run(tmp_path / "run", slow_loader_plan("transform"))
    edit_rank(run, loaders=(Loader(0, "Train", "map", num_workers=2), Loader(1, "Val", "map")))
    assert show_interval(run, loader="0").verdict.title == "Highly input-bound"
    other = show_interval(run, loader="1")
    assert other.verdict.title == "No step takes its data from this DataLoader"
    assert (other.figures, other.readings, other.waits) == ((), (), None)
    assert [("Step" in label_queues(show_processing(run, loader=number))) for number in "01"] == [True, False]


def test_several_loaders_can_be_chosen(tmp_path: Path) -> None:
    run = build_run(tmp_path / "run", RunPlan())
    loaders = (Loader(0, "Train", "map", num_workers=2), Loader(1, "Val", "map", num_workers=1))
    edit_rank(run, loaders=loaders)
    write_rows(run, "queues", [sample(1, 1), sample(1, 0, loader=1)])
    page = open_data_page(run)
    assert [(link.label, link.current) for link in page.loaders] == [("0: Train", True), ("1: Val", False)]
    assert show_interval(run, loader="1").queues[0].empty == "empty in 1 of 1 request"
    assert open_data_page(run, loader="9").problems


def test_batches_stand_for_the_steps_of_a_run_that_only_infers(tmp_path: Path) -> None:
    view = show_interval(make_inference(build_run(tmp_path / "run", slow_loader_plan("transform"))))
    assert view.verdict.title == "Highly input-bound"
    assert view.verdict.text.startswith("The batch waits for data")
    assert [figure.label for figure in view.figures] == ["Mean batch", "Wait for batch", "Host-to-device"]
    assert view.queues[0].empty == "empty in 30 of 40 requests"
    assert view.queues[0].chart.columns == ("Batch", "Depth")
    assert view.coverage == "Means are over batches 1–40."
    run = make_inference(build_run(tmp_path / "run", slow_loader_plan("transform")))
    assert [tab.label for tab in open_data_page(run).tabs] == ["Batch interval", "Data processing"]
    lane = show_processing(run).graph[-1]
    assert lane.kind == "lane"
    assert lane.note == "one batch after the other"
    assert (lane.stages[-1].label, lane.stages[-1].per) == ("Batch", "a batch")


def test_the_users_own_queues_and_stages_are_drawn_apart(tmp_path: Path) -> None:
    run = build_run(tmp_path / "run", RunPlan())
    write_rows(run, "queues", [sample(s, s % 2, loader=-1, queue="decoded") for s in range(1, 5)])
    write_rows(run, "stages", [stage("read"), stage("decode", loader=None)])
    own = show_processing(run, queue="decoded")
    assert own.panel is not None
    lane, queue = own.own_graph
    assert lane.kind == "lane"
    assert queue.kind == "queue"
    assert ([box.label for box in lane.stages], queue.label) == (["decode"], "decoded")


@pytest.mark.parametrize(("loader", "stages"), [(0, ["read"]), (None, ["decode"]), (None, ["decode", "crop"])])
def test_workers_and_replicas_without_a_bar_are_counted(loader: int | None, stages: list[str], tmp_path: Path) -> None:
    run = build_run(tmp_path / "run", RunPlan())
    write_rows(run, "stages", [stage(name, loader=loader, replica=at) for name in stages for at in range(100)])
    view = show_processing(run)
    assert (len(view.workers), view.workers_left_out) == (64, 100 * len(stages) - 64)


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


def test_no_workers_is_a_state_of_its_own(tmp_path: Path) -> None:
    run = build_run(tmp_path / "run", NO_WORKERS)
    view = show_interval(run)
    assert "num_workers=0" in view.no_queue
    assert view.verdict.title == "Highly input-bound"
    graph = show_processing(run)
    assert label_queues(graph) == ["Read", "Transform", "Collate", "Host-to-device", "Step"]
    assert graph.workers == ()


def test_no_dataloader_at_all_is_said(tmp_path: Path) -> None:
    run = build_run(tmp_path / "run", replace(NO_WORKERS, phases_ms=HEALTHY_STEP_MS))
    remove_tables(run, "queues", "stages", "fetches")
    edit_rank(run, loaders=())
    assert "No DataLoader was used" in show_interval(run).no_queue
    assert show_processing(run).lead.title == "No DataLoader was used"
    assert label_queues(show_processing(run)) == ["Host-to-device", "Step"]


def test_an_iterable_dataset_says_so(tmp_path: Path) -> None:
    run = build_run(tmp_path / "run", RunPlan())
    edit_rank(run, loaders=(Loader(0, "Stream", "iterable", num_workers=2),))
    arguments = dict(show_processing(run).arguments)
    assert "IterableDataset" in arguments["dataset"]
    assert arguments["length"] == "unknown"


def test_a_pipeline_that_was_switched_off_names_the_option(tmp_path: Path) -> None:
    run = build_run(tmp_path / "run", RunPlan())
    remove_tables(run, "queues", "stages", "fetches")
    edit_rank(run, signals=(Signal("data_pipeline", "off", ""),))
    page = open_data_page(run)
    assert page.notice is not None
    assert page.notice.state == "off"
    assert "data_pipeline=True" in page.notice.remedy


def test_a_wrong_tab_is_told(tmp_path: Path) -> None:
    page = open_data_page(build_run(tmp_path / "run", RunPlan()), tab="cake")
    assert page.problems
    assert page.interval is not None


def test_a_run_without_the_pipeline_still_shows_what_the_steps_waited_for(tmp_path: Path) -> None:
    run = build_run(tmp_path / "run", NO_WORKERS)
    remove_tables(run, "queues", "stages", "fetches")
    edit_rank(run, signals=(Signal("data_pipeline", "off", "An imported trace has none."),), loaders=())
    page = open_data_page(run)
    assert page.notice is not None
    assert page.interval is not None
    assert page.interval.verdict.title == "Highly input-bound"
    assert (page.interval.readings, page.interval.no_queue) == ((), "")
    assert open_data_page(run, tab="processing").processing is None
