"""The Memory and resources page: what it says of processors, GPUs and tensors, and of what is not there."""

from __future__ import annotations

from pathlib import Path

from collector.format.run import open_run
from collector.format.schema import layout
from tests.support.machines import build_machine, build_resources
from tests.support.memory_page import change_manifest, show
from tests.support.row_edits import write_rows
from tests.support.runs import RunPlan, build_steps


def test_the_first_sentence_says_who_used_the_processors(tmp_path: Path) -> None:
    shown = show(build_machine(tmp_path / "run"))
    assert shown.host is not None
    assert shown.host.sentence == (
        "The processors had room: training used 1.29 cores, its 2 workers 1.58, other programs 0.11, of 4."
    )
    assert [chart.id for chart in shown.host.charts] == ["cpu", "cpu-workers", "run-queue"]
    assert [chart.id for chart in shown.host.memory_charts] == ["rss", "disk"]


def test_full_processors_are_told(tmp_path: Path) -> None:
    run = build_machine(tmp_path / "run")
    change_manifest(run, usable_cores=3.0)
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


def test_the_gpu_is_shown_with_its_name_and_capacity(tmp_path: Path) -> None:
    shown = show(build_machine(tmp_path / "run"))
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
