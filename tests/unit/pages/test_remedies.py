"""The code that a page proposes where something was not recorded: copied into the script, it changes something."""

from __future__ import annotations

from pathlib import Path

from collector.format.run import open_run
from collector.format.schema.manifest import Signal
from profiler_server.page import (
    EARLIER_REMEDY,
    WINDOW_REMEDY,
    Notice,
    PageRequest,
    choose_remedy,
)
from profiler_server.pages.memory import build
from tests.support.live import edit_rank
from tests.support.runs import RunPlan, build_run
from tests.support.scripts import run_script
from tests.support.tables import remove_tables

INFERENCE = """
import torch
from torch.utils.data import DataLoader, TensorDataset
from collector import Profiler

layer = torch.nn.Linear(64, 10).eval()
loader = DataLoader(TensorDataset(torch.randn(160, 64)), batch_size=8)

profiler = Profiler("runs/my-run")
with torch.no_grad():
    for (batch,) in loader:
        layer(batch)
profiler.analyse()
"""


def make_light(folder: Path, window: Signal | None = None) -> Path:
    run = build_run(folder, RunPlan(operators=False))
    remove_tables(run, "operators", "slices", "tracks", "kernels", "memory", "resources")
    edit_rank(run, signals=() if window is None else (window,), windows=())
    return run


def test_a_window_that_was_off_is_switched_on(tmp_path: Path) -> None:
    rank = open_run(make_light(tmp_path / "run", Signal("window", "off", "off"))).rank()
    assert choose_remedy(rank, "operators", WINDOW_REMEDY) == WINDOW_REMEDY


def test_a_window_that_came_too_late_is_to_open_earlier(tmp_path: Path) -> None:
    rank = open_run(make_light(tmp_path / "run", Signal("window", "unavailable", "too late"))).rank()
    assert choose_remedy(rank, "operators", WINDOW_REMEDY) == EARLIER_REMEDY


def test_batches_of_an_inference_are_recorded_in_detail(tmp_path: Path) -> None:
    run_script(tmp_path, INFERENCE)
    rank = open_run(tmp_path / "runs" / "my-run").rank()
    assert [(window.first_step, window.last_step) for window in rank.manifest.windows] == [(10, 12)]
    assert rank.status("operators").state == "there"


def read_samples_notice(run: Path) -> Notice:
    notice = build(PageRequest(open_run(run), "run", 0, (0,), {})).host_notice
    assert notice is not None
    return notice


def test_a_run_that_was_too_short_for_a_sample_is_not_told_to_sample(tmp_path: Path) -> None:
    run = make_light(tmp_path / "run")
    started = open_run(run).rank().manifest.started_unix_ns
    edit_rank(run, ended_unix_ns=started + 300_000_000)
    short = read_samples_notice(run)
    assert (short.remedy, "too short for a sample" in short.reason) == ("", True)
    edit_rank(run, ended_unix_ns=started + 60_000_000_000)
    long = read_samples_notice(run)
    assert (long.remedy, "too short" in long.reason) == ("", False)
    edit_rank(run, signals=(Signal("resources", "off", "Switched off."),))
    assert "resources=True" in read_samples_notice(run).remedy


def test_an_imported_trace_is_not_told_to_set_what_is_on_anyway(tmp_path: Path) -> None:
    run = make_light(tmp_path / "run")
    edit_rank(run, state="imported", signals=(Signal("resources", "off"), Signal("queues", "off")))
    assert read_samples_notice(run).remedy == ""
    assert choose_remedy(open_run(run).rank(), "queues", "data_pipeline=True") == ""
