"""The two tabs of the Data pipeline page of a run."""

from __future__ import annotations

from pathlib import Path

from collector.format.run import open_run
from profiler_server.page import PageRequest
from profiler_server.pages.data import DataContext, build
from profiler_server.pages.data.interval import IntervalView
from profiler_server.pages.data.processing import ProcessingView
from tests.support.runs import HEALTHY_STEP_MS, RunPlan

NO_WORKERS = RunPlan(workers=0, phases_ms={**HEALTHY_STEP_MS, "data_wait": 33.0})


def open_data_page(run: Path, **query: str) -> DataContext:
    return build(PageRequest(open_run(run), "run", 0, (0,), query))


def show_interval(run: Path, **query: str) -> IntervalView:
    view = open_data_page(run, **query).interval
    assert view is not None
    return view


def show_processing(run: Path, **query: str) -> ProcessingView:
    view = open_data_page(run, tab="processing", **query).processing
    assert view is not None
    return view


def label_queues(view: ProcessingView) -> list[str]:
    """Name stages and queues from left to right."""
    labels: list[str] = []
    for node in view.graph:
        labels += [box.label for box in node.stages] if node.kind == "lane" else [node.label]
    return labels
