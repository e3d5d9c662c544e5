"""Operators against the roofs of their device, with figures computed by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from collector.format.run import RankRun, open_run
from collector.format.schema.manifest import Device
from profiler_server.analysis.operators.operator_groups import tabulate_roofline
from profiler_server.analysis.operators.roofline import PARTS, find_part, find_roof
from tests.support.live import edit_rank
from tests.support.must import must
from tests.support.runs import RunPlan, build_run
from tests.support.tables import kernel, operator, write_rows

H100 = Device(0, "NVIDIA H100 80GB HBM3")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return build_run(tmp_path / "run", RunPlan())


def _measure(run: Path, devices: tuple[Device, ...], *rows: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    edit_rank(run, devices=devices)
    write_rows(run, "operators", list(rows))
    write_rows(run, "kernels", [kernel("sgemm", operator="aten::mm", tensor_core=True)])
    table = tabulate_roofline(_rank(run)).rows.to_pylist()
    return {(row["name"], row["precision"]): row for row in table}


def _rank(run: Path) -> RankRun:
    return open_run(run).rank(0)


def _work(name: str, dtypes: str, device_ns: int, flops: float, moved: float) -> dict[str, Any]:
    return operator(name, input_dtypes=dtypes, device_self_ns=device_ns, flops=flops, moved_bytes=moved)


@pytest.mark.parametrize(
    ("device", "part"),
    [
        ("Tesla V100-DGXS-32GB", "V100"),
        ("Tesla V100-PCIE-16GB", "V100 PCIe"),
        ("NVIDIA A10", "A10"),
        ("NVIDIA A100-PG509-200", "A100 40GB"),
        ("NVIDIA A100-SXM4-80GB", "A100 80GB"),
        ("NVIDIA A100 80GB PCIe", "A100 80GB PCIe"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("NVIDIA H100 80GB HBM3", "H100 SXM"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA GB200", "GB200"),
        ("AMD Instinct MI250X", "MI250X"),
        ("AMD Instinct MI300X VF", "MI300X"),
    ],
)
def test_devices_are_known_by_the_name_of_their_driver(device: str, part: str) -> None:
    found = must(find_part(device))
    assert found.name == part


def test_an_unknown_device_has_no_roof() -> None:
    assert find_part("AMD Radeon Graphics") is None
    assert find_part("") is None


def test_every_part_names_its_source_and_lower_precision_is_never_slower() -> None:
    for part in PARTS:
        peaks = [peak for peak in (part.fp32, part.tf32, part.fp16) if peak is not None]
        assert part.source
        assert peaks == sorted(peaks)


def test_a_product_near_its_peak_is_bound_by_arithmetic(run: Path) -> None:
    # 989.4e12 operations a second for 1 ms are 989.4e9; half of that was done, with 1e6 bytes.
    row = _measure(run, (H100,), _work("aten::mm", '["c10::BFloat16"]', 1_000_000, 494.7e9, 1e6))["aten::mm", "bf16"]
    assert (row["bound"], row["efficiency_frac"]) == ("compute", pytest.approx(0.5))
    assert row["flops_per_s"] == pytest.approx(494.7e12)
    assert row["intensity"] == pytest.approx(494.7e3)


def test_a_copy_is_measured_by_its_bytes(run: Path) -> None:
    row = _measure(run, (H100,), _work("aten::copy_", '["c10::Half"]', 1_000_000, 0.0, 838e6))["aten::copy_", "fp16"]
    assert (row["bound"], row["efficiency_frac"]) == ("memory", pytest.approx(0.25))
    assert row["intensity"] == 0.0


def test_fp32_on_tensor_cores_is_tf32_but_not_on_amd(run: Path) -> None:
    work = _work("aten::mm", '["float","float"]', 1_000_000, 1e9, 1e6)
    assert set(_measure(run, (H100,), work)) == {("aten::mm", "tf32")}
    assert set(_measure(run, (Device(0, "AMD Instinct MI300X", "rocm"),), work)) == {("aten::mm", "fp32")}


def test_without_a_known_part_there_are_rates_and_no_bound(run: Path) -> None:
    row = _measure(run, (Device(0, "New 1"),), _work("aten::mm", '["double"]', 1000, 1e6, 1e3))["aten::mm", "fp64"]
    assert (row["bound"], row["efficiency_frac"], row["flops_per_s"]) == (None, None, 1e12)


def test_calls_that_did_nothing_on_the_device_do_not_lift_the_rates(run: Path) -> None:
    on_device = _work("aten::copy_", '["float"]', 1000, 0.0, 1e6)
    on_host = _work("aten::copy_", '["float"]', 0, 0.0, 1e9)
    row = _measure(run, (H100,), on_device, on_host)["aten::copy_", "fp32"]
    assert (row["moved_bytes"], row["bytes_per_s"]) == (1e6, 1e12)


def test_a_run_on_the_cpu_is_measured_by_host_self_time(run: Path) -> None:
    write_rows(
        run, "operators", [operator("aten::mm", input_dtypes='["float"]', self_ns=1000, flops=5e4, moved_bytes=1e3)]
    )
    write_rows(run, "kernels", [])
    table = tabulate_roofline(_rank(run))
    assert (table.measure, find_roof(_rank(run))) == ("host", None)
    assert table.rows["flops_per_s"].to_pylist() == [pytest.approx(5e10)]


def test_arguments_without_a_floating_point_type_are_whole_numbers_or_lists(run: Path) -> None:
    rows = _measure(
        run,
        (H100,),
        _work("aten::add", '["long int","long int"]', 1000, 10.0, 10.0),
        _work("aten::_foreach_add_", '["TensorList"]', 1000, 10.0, 10.0),
    )
    assert set(rows) == {("aten::add", "int"), ("aten::_foreach_add_", "list")}


def test_work_of_which_only_the_bytes_or_only_the_operations_are_known_is_measured(run: Path) -> None:
    unknown = {**_work("aten::view", '["float"]', 1000, 0.0, 0.0), "flops": None}
    moved = {**_work("aten::copy_", '["float"]', 1000, 0.0, 2000.0), "flops": None}
    rows = _measure(run, (H100,), unknown, moved)
    assert set(rows) == {("aten::copy_", "fp32")}
    assert rows["aten::copy_", "fp32"]["bytes_per_s"] == 2e9


def test_a_part_that_is_as_busy_with_bytes_as_with_arithmetic_is_bound_by_memory(run: Path) -> None:
    part = must(find_part(H100.name))
    assert part.fp16 is not None
    whole_second = _work("aten::mm", '["c10::Half"]', 1_000_000_000, part.fp16, part.bytes_per_s)
    row = _measure(run, (H100,), whole_second)["aten::mm", "fp16"]
    assert (row["bound"], row["efficiency_frac"]) == ("memory", 1.0)


def test_the_time_of_a_call_is_its_own_kernels_or_else_those_of_its_callees(run: Path) -> None:
    own = {**_work("aten::mm", '["double"]', 1, 1.0, 1.0), "device_total_ns": 9}
    callees = {**_work("aten::addmm", '["double"]', 0, 1.0, 1.0), "device_total_ns": 9}
    rows = _measure(run, (H100,), own, callees)
    assert (rows["aten::mm", "fp64"]["time_ns"], rows["aten::addmm", "fp64"]["time_ns"]) == (1, 9)


@pytest.mark.parametrize(("on_cores_ns", "precision"), [(9, "fp32"), (10, "fp32"), (11, "tf32")])
def test_fp32_is_tf32_where_most_of_its_kernel_time_is_on_tensor_cores(
    run: Path, on_cores_ns: int, precision: str
) -> None:
    edit_rank(run, devices=(H100,))
    write_rows(run, "operators", [_work("aten::mm", '["float"]', 1000, 1e6, 1e3)])
    on_cores = kernel("a", operator="aten::mm", tensor_core=True, total_ns=on_cores_ns)
    write_rows(run, "kernels", [on_cores, kernel("b", operator="aten::mm", total_ns=10), kernel("c", operator=None)])
    assert tabulate_roofline(_rank(run)).rows["precision"].to_pylist() == [precision]


def test_the_roof_is_that_of_the_device_that_worked_most(run: Path) -> None:
    devices = (Device(0, "Tesla T4", "cuda"), Device(1, "AMD Instinct MI210", "rocm"))
    edit_rank(run, devices=devices)
    write_rows(run, "kernels", [kernel("a", device=0, total_ns=10), kernel("b", device=1, total_ns=30)])
    roof = must(find_roof(_rank(run)))
    assert (roof.device, roof.is_rocm) == ("AMD Instinct MI210", True)


def test_operations_of_which_the_bytes_are_not_known_have_no_intensity(run: Path) -> None:
    row = _measure(run, (H100,), _work("aten::mm", '["double"]', 1000, 1e6, 0.0))["aten::mm", "fp64"]
    assert (row["intensity"], row["flops_per_s"]) == (None, 1e12)
