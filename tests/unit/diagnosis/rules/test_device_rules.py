"""Rules about the device, on traces of steps with one kernel each: they need what only a trace has."""

from __future__ import annotations

from pathlib import Path

import pytest

from collector.traces import import_trace
from profiler_server.diagnosis.judging import diagnose
from profiler_server.facts.results import Diagnosis
from tests.support.traces import Event, call, kernel, operator, step, write_trace

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
    assert "while the host runs operators in 6.0 % of it" in diagnosis.sentence


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


def test_tf32_predicts_a_shorter_step(tmp_path: Path) -> None:
    found = diagnose_steps(tmp_path, "ampere_sgemm_128x64_nn").suggestions[0]
    assert found.predicted_step_ns == pytest.approx(20e6 - 0.5 * 19e6, rel=0.1)
    assert 'set_float32_matmul_precision("high")' in found.change
