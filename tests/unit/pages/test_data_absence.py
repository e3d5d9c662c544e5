"""The Data pipeline page of a run without workers, without a loader, or with less than was asked for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from collector.format.run import open_run
from collector.format.schema.manifest import Loader, Signal
from tests.support.data_page import NO_WORKERS, label_queues, open_data_page, show_interval, show_processing
from tests.support.runs import HEALTHY_STEP_MS, RunPlan, build_run
from tests.support.tables import edit_manifest, remove_tables


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
    edit_manifest(run, loaders=())
    assert "No DataLoader was used" in show_interval(run).no_queue
    assert show_processing(run).lead.title == "No DataLoader was used"
    assert label_queues(show_processing(run)) == ["Host-to-device", "Step"]


def test_an_iterable_dataset_says_so(tmp_path: Path) -> None:
    run = build_run(tmp_path / "run", RunPlan())
    edit_manifest(run, loaders=(Loader(0, "Stream", "iterable", num_workers=2),))
    arguments = dict(show_processing(run).arguments)
    assert "IterableDataset" in arguments["dataset"]
    assert arguments["length"] == "unknown"


def test_a_pipeline_that_was_switched_off_names_the_option(tmp_path: Path) -> None:
    run = build_run(tmp_path / "run", RunPlan())
    remove_tables(run, "queues", "stages", "fetches")
    edit_manifest(run, signals=(Signal("data_pipeline", "off", ""),))
    page = open_data_page(run)
    assert page.notice is not None
    assert page.notice.state == "off"
    assert "data_pipeline=True" in page.notice.remedy


def test_a_damaged_table_is_a_failure(tmp_path: Path) -> None:
    run = build_run(tmp_path / "run", RunPlan())
    (open_run(run).rank(0).folder / "stages.parquet").write_bytes(b"broken")
    page = open_data_page(run, tab="processing")
    assert page.notice is not None
    assert page.notice.state == "failed"


def test_a_wrong_tab_is_told(tmp_path: Path) -> None:
    page = open_data_page(build_run(tmp_path / "run", RunPlan()), tab="cake")
    assert page.problems
    assert page.interval is not None


def test_a_run_without_the_pipeline_still_shows_what_the_steps_waited_for(tmp_path: Path) -> None:
    run = build_run(tmp_path / "run", NO_WORKERS)
    remove_tables(run, "queues", "stages", "fetches")
    edit_manifest(run, signals=(Signal("data_pipeline", "off", "An imported trace has none."),), loaders=())
    page = open_data_page(run)
    assert page.notice is not None
    assert page.interval is not None
    assert page.interval.verdict.title == "Highly input-bound"
    assert (page.interval.readings, page.interval.no_queue) == ((), "")
    assert open_data_page(run, tab="processing").processing is None
