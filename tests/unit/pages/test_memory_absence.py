"""Memory and processors of a run in which parts of them were not recorded."""

from __future__ import annotations

from pathlib import Path

from collector.format.schema import layout
from collector.format.schema.manifest import Signal
from tests.support.machines import H100, build_machine
from tests.support.memory_page import change_manifest, show
from tests.support.runs import RunPlan, build_run


def test_a_run_on_the_processor_says_that_there_is_no_gpu(tmp_path: Path) -> None:
    shown = show(build_machine(tmp_path / "run", gpu=False))
    assert shown.gpu is None
    assert shown.gpu_notice is not None
    assert shown.gpu_notice.title == "No GPU"


def test_a_gpu_that_could_not_be_asked_names_what_to_install(tmp_path: Path) -> None:
    run = build_machine(tmp_path / "run", gpu=False)
    change_manifest(run, devices=(H100,), signals=(Signal("gpu", "unavailable", "The GPU was not sampled."),))
    shown = show(run)
    assert shown.gpu_notice is not None
    assert "nvidia-ml-py" in shown.gpu_notice.remedy


def test_parts_that_were_switched_off_name_their_option(tmp_path: Path) -> None:
    run = build_run(tmp_path / "run", RunPlan(operators=False))
    off = (Signal("resources", "off", "resources=False"), Signal("memory", "off", "memory=False"))
    change_manifest(run, signals=off)
    shown = show(run)
    assert (shown.host, shown.gpu, shown.gpu_notice, shown.tensors) == (None, None, None, None)
    for notice, option in ((shown.host_notice, "resources="), (shown.tensor_notice, "memory=")):
        assert notice is not None
        assert notice.state == "off"
        assert option in notice.remedy
        assert option in notice.reason


def test_an_imported_trace_says_why_it_has_no_samples(tmp_path: Path) -> None:
    run = build_run(tmp_path / "run")
    change_manifest(run, state="imported")
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
