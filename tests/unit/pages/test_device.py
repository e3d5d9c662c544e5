"""The Device page as a context: real samples of every kind, and the states without data."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from collector.format.run import Run, open_run
from collector.traces.importing import import_trace
from profiler_server.analysis.operators.operator_groups import tabulate_modules
from profiler_server.derive import derived
from profiler_server.page import PageRequest
from profiler_server.pages.device import DevicePage, build
from profiler_server.pages.device.panels import build_panels
from profiler_server.pages.operators.charts import build_chart
from profiler_server.pages.operators.rows import SORTABLE
from profiler_server.pages.operators.state import parse_state
from profiler_server.pages.overall.facts import list_facts, read_used_devices
from tests.support.machines import build_machine
from tests.support.runs import RunPlan, build_run
from tests.support.tables import remove_tables
from tests.support.traces import Event, call, find_sample, kernel, operator, step, training_steps, write_trace


def _open(run: Path, rank: int = 0, **query: str) -> DevicePage:
    return build(PageRequest(open_run(run), "run", rank, (rank,), query))


@pytest.fixture(scope="module")
def resnet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "resnet"
    return import_trace(find_sample("resnet50_v100_workers0.pt.trace.json.gz"), folder).path


def test_the_categories_are_those_that_are_known(resnet: Path) -> None:
    page = _open(resnet)
    assert page.breakdown is not None
    assert [(part.label, part.duration) for part in page.breakdown.parts] == [
        ("Kernel", "98.6 ms"),
        ("Memcpy", "1.92 ms"),
        ("Memset", "89.0 µs"),
        ("Communication", "0 ms"),
        ("Runtime", "2.91 ms"),
        ("DataLoader", "59.3 ms"),
        ("CPU Exec", "13.7 ms"),
        ("Other", "1.16 ms"),
    ]
    assert page.breakdown.total == "178 ms"


def test_a_device_shows_its_figures_and_accounts_that_sum_to_the_whole(resnet: Path) -> None:
    (device,) = _open(resnet).devices
    assert [fact.value for fact in device.facts] == ["55.5 %", "54.7 %", "49.1 %", "0.0 %"]
    assert sum(account.share_frac for account in device.accounts) == pytest.approx(1.0)
    # Kernels, copies and idle time have one base, so what is not idle is the utilisation and the copies.
    shares = {account.label: account.share_frac for account in device.accounts}
    busy_frac = 1.0 - shares["Idle in between"] - shares.get("Idle around", 0.0) - shares["Exposed copy"]
    assert busy_frac == pytest.approx(0.555, abs=0.002)
    assert device.queue is not None


def test_several_gpus_of_one_trace_stand_apart(tmp_path: Path) -> None:
    work = [kernel("a", 10, 20, 1), kernel("b", 10, 90, 2, stream=9, device=1)]
    events = [step(1, 0, 100), call(1, 1, 1), call(2, 1, 2), *work]
    devices = _open(import_trace(write_trace(tmp_path / "trace.json", events), tmp_path / "run").path).devices
    assert [device.title for device in devices] == ["Device 0: NVIDIA H100", "Device 1"]
    assert [device.accounts[0].duration for device in devices] == ["20.0 µs", "90.0 µs"]


def test_linked_only_leaves_out_work_without_a_launch(tmp_path: Path) -> None:
    run = import_trace(find_sample("vllm_decode_cudagraph.json.gz"), tmp_path / "run").path
    every, linked = _open(run).devices[0], _open(run, linked="1").devices[0]
    assert "counted here" in every.linked or "All of its work" in every.linked
    assert ("left out here" in linked.linked) == ("counted here" in every.linked)


def test_a_cpu_run_says_that_there_is_no_device_in_place_of_zeros(tmp_path: Path) -> None:
    page = _open(build_run(tmp_path / "run"))
    assert (page.breakdown, page.devices, page.device_notice) == (None, (), None)
    assert page.breakdown_notice is not None
    assert (page.breakdown_notice.state, page.breakdown_notice.title) == ("empty", "No device work")
    assert ".to(device" in page.breakdown_notice.remedy


def test_a_cpu_run_with_collectives_keeps_its_breakdown(tmp_path: Path) -> None:
    run = import_trace(find_sample("cpu_only_rank34.pt.trace.json.gz"), tmp_path / "run")
    page = _open(run.path, run.ranks[0])
    assert page.breakdown is not None
    assert page.device_notice is not None
    assert (page.devices, page.device_notice.title) == ((), "No device work")


def test_a_breakdown_that_fails_is_not_taken_for_a_cpu_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(rank: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("profiler_server.pages.device.build_breakdown", fail)
    page = _open(build_run(tmp_path / "run"))
    assert page.breakdown_notice is not None
    assert page.breakdown_notice.state == "failed"


def test_a_run_without_a_window_says_how_to_open_one(tmp_path: Path) -> None:
    run = build_run(tmp_path / "run", RunPlan(operators=False))
    remove_tables(run, "slices", "tracks")
    page = _open(run)
    assert page.breakdown_notice is not None
    assert "window" in page.breakdown_notice.remedy


def test_a_large_run_says_once_that_it_is_being_computed(resnet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(derived, "AT_ONCE_SLICES", 10)
    os.utime(resnet / "profiler/rank_0/steps.parquet", ns=(1, 1))  # nothing is known of these files
    page = _open(resnet)
    assert page.breakdown_notice is not None
    assert (page.breakdown_notice.state, page.device_notice, page.devices) == ("pending", None, ())


def test_a_run_beyond_measure_says_what_does_it(resnet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(derived, "AT_ONCE_SLICES", 10)
    monkeypatch.setattr(derived, "MOST_SLICES", 10)
    os.utime(resnet / "profiler/rank_0/steps.parquet", ns=(2, 2))
    notice = _open(resnet).breakdown_notice
    assert notice is not None
    assert (notice.state, "stepscope report" in notice.reason) == ("off", True)


def test_a_run_with_a_device_that_showed_no_work_says_that_and_not_that_it_had_none(tmp_path: Path) -> None:
    build_machine(tmp_path / "run")
    notice = _open(tmp_path / "run").breakdown_notice
    assert notice is not None
    assert notice.title == "No device work was recorded"
    assert "although this run had a device" in notice.reason
    assert "as it should be" not in notice.reason


def test_a_trace_with_a_device_but_no_kernel_says_how_to_record_them(tmp_path: Path) -> None:
    events = [step(1, 0, 100), operator("aten::mm", 10, 50)]
    notice = _open(import_trace(write_trace(tmp_path / "trace.json", events), tmp_path / "run").path).breakdown_notice
    assert notice is not None
    assert "NVIDIA H100" in notice.reason
    assert "ProfilerActivity.CUDA" in notice.remedy


FOUR = {"deviceProperties": [{"id": index, "name": "Tesla V100", "totalGlobalMem": 32 << 30} for index in range(4)]}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return import_trace(write_trace(tmp_path / "t.json", training_steps(), FOUR), tmp_path / "run")


def test_of_the_devices_of_a_machine_only_those_that_were_used_are_listed(run: Run) -> None:
    rank = run.rank()
    facts = list_facts(run.manifest, rank.manifest, 1, read_used_devices(rank))
    assert [(fact.label, fact.value) for fact in facts if fact.label.startswith("Device")] == [
        ("Devices", "1 of 4 GPUs used"),
        ("Device", "0: Tesla V100, 32.0 GiB"),
    ]


def test_launches_say_why_late_and_short_ones_matter(run: Run) -> None:
    panels = build_panels(run.rank(), False)
    assert isinstance(panels, tuple)
    notes = {fact.label: fact.note for fact in panels[0].launches}
    assert notes["Launches"] == "every piece of work has its call"
    assert "fuse them" in notes["Short kernels"]
    assert "which is good" in notes["Late while busy"]
    assert "held them up" in notes["Late while idle"]


def test_modules_are_drawn_at_the_depth_at_which_all_fit(tmp_path: Path) -> None:
    """Forty leaves of one class in four layers: their classes by layer are the parts, and nothing is Other."""
    events: list[Event] = [step(1, 0, 9000), {**operator("nn.Module: Net_0", 0, 9000), "cat": "python_function"}]
    for layer in range(4):
        at = 10 + layer * 2000
        events.append({**operator(f"nn.Module: Layer_{layer}", at, 1900), "cat": "python_function"})
        for leaf in range(10):
            begin, number = at + 5 + leaf * 100, layer * 10 + leaf + 1
            events.append({**operator(f"nn.Module: Linear_{number}", begin, 90), "cat": "python_function"})
            events += [operator("aten::mm", begin + 5, 50), call(begin + 10, 5, number)]
            events.append(kernel("gemm", begin + 40, 10, number))
    rank = import_trace(write_trace(tmp_path / "t.json", events), tmp_path / "run").rank()
    chart = build_chart(tabulate_modules(rank, None), parse_state({"group": "modules"}, SORTABLE), "modules")
    assert chart is not None
    assert sorted(row[0] for row in chart.rows) == [f"Net_0.Layer_{layer}.Linear_*" for layer in range(4)]
    assert {row[3] for row in chart.rows} == {"25.0 %"}
