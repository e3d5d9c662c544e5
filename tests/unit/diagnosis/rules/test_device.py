"""Rules on the device that need what only a trace has, or samples of its clock; and waits that the device hides."""

from __future__ import annotations

from pathlib import Path

import pytest

from collector.format.run import open_run
from collector.traces.importing import import_trace
from profiler_server.analysis.memory.resources import read_held_clock
from profiler_server.diagnosis.judging import diagnose
from profiler_server.facts.machine import HeldClock
from profiler_server.facts.results import Diagnosis
from tests.support import facts as make
from tests.support.diagnosing import measure
from tests.support.plants import A100, Plant, build_case_run
from tests.support.row_edits import Row
from tests.support.runs import MS
from tests.support.traces import Event, annotation, call, kernel, operator, step, write_trace
from tests.unit.diagnosis.edges.base import base
from tests.unit.diagnosis.edges.noted import throttled

STEP_US = 20_000.0


def diagnose_steps(
    tmp_path: Path,
    name: str = "gemm_sm90",
    busy_us: float = 19_000.0,
    capability: int = 8,
    operator_us: float = STEP_US - 900,
) -> Diagnosis:
    """Record steps with a kernel of this name and length; with a short one, the next is launched late."""
    events: list[Event] = []
    for number in range(1, 31):
        at = number * STEP_US
        events += [
            step(number, at, STEP_US - 1),
            operator("aten::mm", at + 100, operator_us),
            call(at + 110, 10, number),
            kernel(name, at + 130, busy_us, number),
        ]
        if busy_us > STEP_US / 2:  # else the host is busy itself, and is not held by the device
            events.append(call(at + 140, busy_us - 5, number + 1_000, "cudaDeviceSynchronize"))
    device = {"id": 0, "name": "NVIDIA", "numSms": 108, "computeMajor": capability, "computeMinor": 0}
    trace = write_trace(tmp_path / "t.json", events, {"deviceProperties": [device]})
    return diagnose(import_trace(trace, tmp_path / "run"), 0)


def list_rules(diagnosis: Diagnosis) -> list[str]:
    return [found.rule for found in diagnosis.suggestions]


def test_launch_bound_speaks_while_the_device_waits_for_the_next_launch(tmp_path: Path) -> None:
    diagnosis = diagnose_steps(tmp_path, busy_us=5_000.0)
    assert (diagnosis.bound_by.kind, list_rules(diagnosis)) == ("launch", ["launch_bound"])
    found = diagnosis.suggestions[0]
    assert found.predicted_step_ns is not None
    assert 5e6 < found.predicted_step_ns < 20e6


def test_a_device_that_waits_for_python_is_not_called_launch_bound(tmp_path: Path) -> None:
    diagnosis = diagnose_steps(tmp_path, busy_us=1_000.0, operator_us=1_200.0)
    assert (diagnosis.bound_by.kind, list_rules(diagnosis)) == ("overhead", [])
    assert "The host runs operators in 6.0 % of it" in diagnosis.sentence


@pytest.mark.parametrize("capability", [7, 8, 9])
def test_busy_device_with_tensor_cores_gets_no_advice(capability: int, tmp_path: Path) -> None:
    name = "cutlass_80_tensorop_s1688gemm_256x64_16x4_nn_align4"
    diagnosis = diagnose_steps(tmp_path, name, capability=capability)
    assert (diagnosis.bound_by.kind, list_rules(diagnosis)) == ("compute", [])


@pytest.mark.parametrize(
    ("name", "capability", "rules"),
    [
        ("ampere_sgemm_128x64_nn", 8, ["tf32_off"]),
        ("void cutlass::Kernel2<cutlass_80_simt_sgemm_128x128_8x4_nn_align1>", 9, ["tf32_off"]),
        ("sm80_xmma_fprop_implicit_gemm_f32f32_f32f32_f32_nhwckrsc_nchw", 8, ["tf32_off"]),
        ("sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nchw", 8, []),
        ("volta_sgemm_128x32_nt", 7, ["amp_off"]),
        ("void cudnn::detail::dgrad_engine<float, 512, 6, 5, 3, 3, 3, false>", 7, ["amp_off"]),
        ("maxwell_sgemm_128x64_nn", 6, []),
    ],
)
def test_full_precision_is_told_by_the_names_of_kernels(
    name: str, capability: int, rules: list[str], tmp_path: Path
) -> None:
    assert list_rules(diagnose_steps(tmp_path, name, capability=capability)) == rules


def test_precision_is_not_worth_saying_while_the_device_idles(tmp_path: Path) -> None:
    assert "tf32_off" not in list_rules(diagnose_steps(tmp_path, "ampere_sgemm_128x64_nn", busy_us=1_000.0))


def test_tf32_is_to_be_tried_where_nothing_tells_what_it_gains(tmp_path: Path) -> None:
    found = diagnose_steps(tmp_path, "ampere_sgemm_128x64_nn").suggestions[0]
    assert found.predicted_step_ns is None
    assert "How much it saves is not known beforehand." in found.advice
    assert 'set_float32_matmul_precision("high")' in found.change


def clocks(held: int, of: int = 40, flags: int = 2, hz: float = 0.7e9) -> list[Row]:
    """Return samples of a GPU, of which some are held down by heat."""
    return [
        {"start_ns": 1_000 * MS + n * 100 * MS, "source": "gpu 0", "metric": metric, "value": value}
        for n in range(of)
        for metric, value in (
            ("clock_hz", hz if n < held else 1.4e9),
            ("throttle_flags", float(flags) if n < held else 1.0),
        )
    ]


def find(path: Path, rows: list[Row]) -> HeldClock | None:
    run = build_case_run(path, Plant(manifest={"devices": (A100,)}, tables={"resources": rows}))
    return read_held_clock(run.rank(0), 0, 1 << 50)


def test_a_clock_that_heat_holds_down_is_compared_with_the_usual_one(tmp_path: Path) -> None:
    found = find(tmp_path / "run", clocks(20))
    assert found == HeldClock("gpu 0", 0.5, 0.7e9, 1.4e9, True)
    assert found.lost_frac == pytest.approx(0.25)


@pytest.mark.parametrize("rows", [clocks(0), clocks(20, flags=1), clocks(4, of=8), []])
def test_a_power_limit_or_few_samples_are_no_fault(rows: list[Row], tmp_path: Path) -> None:
    assert find(tmp_path / "run", rows) is None


def test_a_clock_that_was_never_free_has_nothing_to_compare_with(tmp_path: Path) -> None:
    found = find(tmp_path / "run", clocks(40))
    assert found is not None
    assert found.lost_frac == 0.0


def test_without_device_times_the_rule_asks_for_them(tmp_path: Path) -> None:
    plant = Plant(manifest={"devices": (A100,)}, tables={"resources": clocks(20)})
    diagnosis = diagnose(build_case_run(tmp_path / "run", plant), 0)
    assert "clock_throttle" in {entry.rule for entry in diagnosis.abstained}
    assert "clock_throttle" not in {entry.rule for entry in diagnosis.suggestions}


def test_what_a_cool_device_saves_is_its_share_of_the_step() -> None:
    found = make.find(throttled(0.25), "clock_throttle")
    assert "700 MHz" in found.text.measured
    assert found.what_if.touches["kernels"] == pytest.approx(0.25 * 0.9 * base().steps.mean_ns)


def _train(device_us: float) -> list[Event]:
    """Return steps of 10 ms, half of them in the loader, whose kernel is launched after that and runs so long."""
    events: list[Event] = []
    for number in range(30):
        at = number * 10_000
        events += [
            step(number, at, 9_990),
            annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at + 10, 5_000),
            operator("aten::linear", at + 5_100, 600),
            call(at + 5_110, 50, number),
            kernel("gemm", at + 5_200, device_us, number),
            operator("autograd::engine::evaluate_function: AddmmBackward0", at + 6_000, 500),
            annotation("Optimizer.step#SGD.step", at + 6_600, 400),
        ]
    return events


@pytest.mark.parametrize(("device_us", "bound", "rules"), [(9_900, "compute", []), (3_000, "input", ["no_workers"])])
def test_a_wait_that_the_device_hides_bounds_nothing(
    tmp_path: Path, device_us: float, bound: str, rules: list[str]
) -> None:
    run = import_trace(write_trace(tmp_path / "t.json", _train(device_us)), tmp_path / "run")
    found = diagnose(run, 0)
    assert found.bound_by.kind == bound
    assert [entry.rule for entry in found.suggestions if entry.severity != "info"] == rules


def test_no_wait_is_taken_out_of_the_time_that_the_device_needs(tmp_path: Path) -> None:
    run = open_run(import_trace(write_trace(tmp_path / "t.json", _train(8_000)), tmp_path / "run").path)
    case = measure(run)
    assert case.steps.regular_phases_ns["data_wait"] > 4_000_000
    assert case.loading.wait_ns == pytest.approx(2_000_000, rel=0.05)
    assert min(entry.wall_ns for entry in case.loading.loop.model.steps) > 7_500_000
