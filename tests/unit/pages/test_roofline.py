"""The roofline tab: roofs where the device is known, and why there are none where it is not."""

from __future__ import annotations

from pathlib import Path

import plotly.graph_objects as go
import pytest

from collector.format.run import open_run
from collector.format.schema.manifest import Device
from profiler_server.page import PageRequest
from profiler_server.pages.operators import OperatorsContext, build
from tests.support.runs import RunPlan, build_run
from tests.support.tables import edit_manifest, kernel, operator, write_rows

WORK = {"input_dtypes": '["c10::Half"]', "flops": 1e12, "moved_bytes": 1e9}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return build_run(tmp_path / "run", RunPlan())


def _open(run: Path, **query: str) -> OperatorsContext:
    return build(PageRequest(open_run(run), "run", 0, (0,), {"group": "roofline", **query}))


def _use_device(run: Path, name: str) -> None:
    edit_manifest(run, devices=(Device(0, name),))
    write_rows(run, "operators", [operator("aten::mm", device_self_ns=2_000_000, **WORK)])
    write_rows(run, "kernels", [kernel("gemm", operator="aten::mm")])


def test_a_known_device_gives_a_roof_with_its_source(run: Path) -> None:
    _use_device(run, "NVIDIA H100 80GB HBM3")
    page = _open(run)
    assert page.chart is not None
    assert [trace["name"] for trace in page.chart.figure["data"]] == ["H100 SXM FP16: 989 TFLOP/s", "operators"]
    assert go.Figure(page.chart.figure).to_plotly_json()["layout"]["xaxis"]["type"] == "log"
    assert "architecture whitepaper" in page.definition
    assert page.chart.rows[0][3:] == ("500 TFLOP/s", "1e+03", "compute", "50.5 %")


def test_an_unknown_device_is_named_and_rates_are_shown(run: Path) -> None:
    _use_device(run, "AMD Radeon Graphics")
    page = _open(run)
    assert page.chart is not None
    assert [trace["name"] for trace in page.chart.figure["data"]] == ["operators"]
    assert "“AMD Radeon Graphics” is not in the table" in page.definition


def test_a_cpu_run_says_why_it_has_no_roof(run: Path) -> None:
    write_rows(run, "operators", [operator("aten::mm", self_ns=2_000_000, **WORK)])
    write_rows(run, "kernels", [])
    page = _open(run)
    assert page.definition.startswith("No roof: the work ran on the CPU")
    assert page.grid is not None


def test_a_trace_without_shapes_says_how_to_record_them(run: Path) -> None:
    write_rows(run, "operators", [operator("aten::mm", input_shapes=None)])
    page = _open(run)
    assert page.notice is not None
    assert (page.notice.title, page.grid, page.chart_switch) == ("No shapes were recorded", None, ())


def test_columns_of_the_roofline_sort(run: Path) -> None:
    _use_device(run, "NVIDIA H100 80GB HBM3")
    more = operator("aten::add", device_self_ns=9_000_000, **{**WORK, "flops": 1e9})
    write_rows(run, "operators", [operator("aten::mm", device_self_ns=2_000_000, **WORK), more])
    page = _open(run, sort="-efficiency_frac")
    assert page.grid is not None
    assert [row.cells[0].text for row in page.grid.rows] == ["aten::mm", "aten::add"]
