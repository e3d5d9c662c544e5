"""The Memory and resources page as a context: samples, tensors, and what is said where parts were not recorded."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from collector.format.run import open_run
from collector.format.schema import layout
from collector.format.schema.manifest import Signal
from collector.format.words import ENDED_WORKERS
from profiler_server.analysis.memory.resources import summarize_host
from tests.support.live import edit_rank
from tests.support.machines import H100, build_machine, build_memory, build_resources
from tests.support.memory_page import show
from tests.support.row_edits import write_rows
from tests.support.runs import MS, RunPlan, build_run, build_steps


def test_processors_and_gpu_are_shown_with_who_used_them(tmp_path: Path) -> None:
    shown = show(build_machine(tmp_path / "run"))
    assert shown.host is not None
    assert shown.host.sentence == (
        "The processors had room: the main process used 1.29 cores, its 2 workers 1.58, other programs 0.11, of 4."
    )
    assert [chart.id for chart in shown.host.charts] == ["cpu", "cpu-workers", "run-queue"]
    assert [chart.id for chart in shown.host.memory_charts] == ["rss", "disk"]
    assert shown.gpu is not None
    (row,) = shown.gpu.rows
    assert (row[0], row[2], row[4]) == ("GPU 0: NVIDIA H100", "21.0 GiB of 80.0 GiB", "61 °C")
    assert [chart.title for chart in shown.gpu.charts] == [
        "Utilisation",
        "Memory in use",
        "Power",
        "Temperature",
        "Clock",
    ]


def test_workers_that_ended_share_one_line_and_are_no_other_programs(tmp_path: Path) -> None:
    run = build_machine(tmp_path / "run")
    rows = build_resources(build_steps(RunPlan()))
    ended = [{**row, "source": ENDED_WORKERS} for row in rows if row["source"] == "worker 1"]
    kept = [row for row in rows if row["source"] != "worker 1"]
    write_rows(layout.rank_path(run, 0), "resources", [*kept, *(row for row in ended if row["metric"] == "cpu_cores")])
    shown = show(run)
    assert shown.host is not None
    assert shown.host.sentence.endswith("its 1 worker 1.53, other programs 0.13, of 4.")
    assert [drawn.caption.endswith("before share one line.") for drawn in shown.host.charts] == [False, True, False]
    load = summarize_host(open_run(run).rank(0), 0, 10**15)
    assert load is not None
    assert load.workers == pytest.approx(1.53, abs=0.02)
    assert load.busiest_worker == pytest.approx(0.67, abs=0.02)


def test_full_processors_are_told(tmp_path: Path) -> None:
    run = build_machine(tmp_path / "run")
    edit_rank(run, usable_cores=3.0)
    shown = show(run)
    assert shown.host is not None
    assert shown.host.sentence.startswith("The processors were full")


def test_a_range_of_steps_narrows_every_chart(tmp_path: Path) -> None:
    shown = show(build_machine(tmp_path / "run"), steps="50-90")
    assert shown.host is not None
    assert shown.gpu is not None
    for chart in (*shown.host.charts, *shown.host.memory_charts, *shown.gpu.charts):
        low, high = chart.figure["layout"]["xaxis"]["range"]
        assert 50 <= low < high < 91


def test_a_range_between_two_samples_is_an_empty_state(tmp_path: Path) -> None:
    shown = show(build_machine(tmp_path / "run"), steps="3")
    assert shown.host is None
    assert shown.host_notice is not None
    assert "wider range" in shown.host_notice.reason


def test_a_gpu_whose_clock_was_held_down_says_for_how_long_and_why(tmp_path: Path) -> None:
    path = build_machine(tmp_path / "run")
    assert show(path).gpu.throttling == ()  # type: ignore[union-attr]
    rows = build_resources(build_steps(RunPlan()), gpu=True)
    flags = [{**row, "metric": "throttle_flags", "value": 1.0} for row in rows if row["metric"] == "power_w"]
    write_rows(layout.rank_path(path, 0), "resources", [*rows, *flags])
    assert show(path).gpu.throttling == (  # type: ignore[union-attr]
        "GPU 0 was throttled in 100.0 % of the samples: power limit 100.0 %.",
    )


def test_a_wait_for_a_processor_is_never_more_than_all_of_the_time(tmp_path: Path) -> None:
    run = build_machine(tmp_path / "run")
    rows = open_run(run).table("resources").to_pylist()
    for row in rows:
        if row["metric"] == "run_queue_frac":
            row["value"] = 1.2
    write_rows(layout.rank_path(run, 0), "resources", rows)
    shown = show(run)
    assert shown.host is not None
    assert next(s.value for s in shown.host.stats if s.label == "Waiting for a processor") == "100.0 %"
    chart = next(chart for chart in shown.host.charts if chart.id == "run-queue")
    assert {text for _, *cells in chart.rows for text in cells} == {"100.0 %"}


def test_the_peak_is_shown_first_and_any_moment_can_be_picked(tmp_path: Path) -> None:
    run = build_machine(tmp_path / "run")
    shown = show(run).tensors
    assert shown is not None
    assert shown.moment.is_peak
    assert shown.moment.sentence.startswith("648 MiB were allocated of 1.00 GiB reserved. 6 blocks of that")
    early = show(run, at_ns=str(shown.origin_ns + 100)).tensors
    assert early is not None
    assert not early.moment.is_peak
    assert [block.operator for block in early.moment.live.blocks] == ["aten::mm"]


@pytest.mark.parametrize(
    "query", [{"at_ns": "x"}, {"at_ns": "-1"}, {"device": "7"}, {"device": "<b>", "at_ns": "9" * 40}]
)
def test_a_bad_moment_or_device_is_told_and_the_peak_shown(tmp_path: Path, query: dict[str, str]) -> None:
    shown = show(build_machine(tmp_path / "run"), **query).tensors
    assert shown is not None
    assert "is shown" in shown.error or "the peak" in shown.error
    assert shown.moment.live.blocks


def test_devices_are_tabs_where_there_are_several(tmp_path: Path) -> None:
    run = build_machine(tmp_path / "run")
    steps = build_steps(RunPlan(steps=200))
    rows = sorted([*build_memory(steps, 0), *build_memory(steps, -1)], key=lambda row: row["start_ns"])
    write_rows(layout.rank_path(run, 0), "memory", rows)
    shown = show(run, device="-1").tensors
    assert shown is not None
    assert [(link.label, link.current) for link in shown.devices] == [("GPU 0", False), ("Host memory", True)]
    assert shown.chart.title.startswith("Host memory")


def test_a_moment_is_placed_in_its_window(tmp_path: Path) -> None:
    run = build_machine(tmp_path / "run")
    (window,) = open_run(run).rank(0).manifest.windows
    earlier = dataclasses.replace(window, first_step=2, last_step=2, start_ns=window.start_ns - 40 * MS)
    edit_rank(run, windows=(earlier, window))
    shown = show(run, at_ns=str(window.start_ns + 5 * MS))
    assert shown.tensors is not None
    assert "into the window of steps 10–12" in shown.tensors.moment.title
    edit_rank(run, windows=())
    shown = show(run)
    assert shown.tensors is not None
    assert "after the first event" in shown.tensors.moment.title


def test_a_run_on_the_processor_says_that_there_is_no_gpu(tmp_path: Path) -> None:
    shown = show(build_machine(tmp_path / "run", gpu=False))
    assert shown.gpu is None
    assert shown.gpu_notice is not None
    assert shown.gpu_notice.title == "No GPU"


def test_a_gpu_that_could_not_be_asked_names_what_to_install(tmp_path: Path) -> None:
    run = build_machine(tmp_path / "run", gpu=False)
    edit_rank(run, devices=(H100,), signals=(Signal("gpu", "unavailable", "The GPU was not sampled."),))
    shown = show(run)
    assert shown.gpu_notice is not None
    assert "nvidia-ml-py" in shown.gpu_notice.remedy


def test_parts_that_were_switched_off_name_their_option(tmp_path: Path) -> None:
    run = build_run(tmp_path / "run", RunPlan(operators=False))
    off = (Signal("resources", "off", "resources=False"), Signal("memory", "off", "memory=False"))
    edit_rank(run, signals=off)
    shown = show(run)
    assert (shown.host, shown.gpu, shown.gpu_notice, shown.tensors) == (None, None, None, None)
    for notice, option in ((shown.host_notice, "resources="), (shown.tensor_notice, "memory=")):
        assert notice is not None
        assert notice.state == "off"
        assert option in notice.remedy
        assert option in notice.reason


def test_an_imported_trace_says_why_it_has_no_samples(tmp_path: Path) -> None:
    run = build_run(tmp_path / "run")
    edit_rank(run, state="imported")
    notice = show(run).host_notice
    assert notice is not None
    assert "imported trace" in notice.reason


def test_a_damaged_table_takes_only_its_own_part_away(tmp_path: Path) -> None:
    run = build_machine(tmp_path / "run")
    layout.table_file(layout.rank_path(run, 0), "memory").write_bytes(b"PAR1 no")
    shown = show(run)
    assert shown.host is not None
    assert shown.tensor_notice is not None
    assert shown.tensor_notice.state == "failed"


def test_a_run_without_steps_shows_its_samples_over_seconds(tmp_path: Path) -> None:
    run = build_machine(tmp_path / "run")
    layout.table_file(layout.rank_path(run, 0), "steps").unlink()
    shown = show(run)
    assert shown.host is not None
    assert "over seconds" in shown.host.coverage
