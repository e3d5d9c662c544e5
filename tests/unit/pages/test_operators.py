"""The Operators page and its roofline as a context."""

from __future__ import annotations

from pathlib import Path

import plotly.graph_objects as go
import pytest

from collector.format.lens import parse_range
from collector.format.run import open_run
from collector.format.schema.manifest import Device, Signal
from profiler_server.page import PageRequest
from profiler_server.pages.operators import OperatorsContext, build
from profiler_server.pages.operators.state import shorten_key
from tests.support.live import edit_rank
from tests.support.runs import RunPlan, build_run
from tests.support.tables import kernel, operator, remove_tables, write_rows


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return build_run(tmp_path / "run", RunPlan())


def _open(run: Path, **query: str) -> OperatorsContext:
    return build(PageRequest(open_run(run), "run", 0, (0,), query, parse_range(query.get("steps", ""))))


def _names(page: OperatorsContext) -> list[str]:
    assert page.grid is not None
    names = [next((cell for cell in row.cells if cell.kind == "name"), None) for row in page.grid.rows]
    return [cell.text for cell in names if cell]


def test_types_are_shown_first_with_their_shares_and_what_they_cover(run: Path) -> None:
    page = _open(run)
    assert page.grid is not None
    assert _names(page) == ["convolution", "matmul", "activation", "pooling", "optimizer"]
    assert [cell.text for cell in page.grid.rows[0].cells] == [
        *("convolution", "2", "48", "93.0 ms", "1.94 ms", "87.0 ms", "72.5 %")
    ]
    assert "steps 10–12" in page.coverage
    assert "50.0 ms" in page.coverage
    assert "sums to 100 %" in page.definition


def test_a_type_opens_to_its_operators_and_an_operator_to_shapes_and_steps(run: Path) -> None:
    page = _open(run, type="convolution", operator="aten::mkldnn_convolution")
    assert page.grid is not None
    assert _names(page)[:3] == ["convolution", "aten::convolution_backward", "aten::mkldnn_convolution"]
    detail = page.grid.rows[2].detail
    assert detail is not None
    assert detail.shapes.rows[0][:2] == ("[[32,16,28,28]]", "24")
    assert [row[0] for row in detail.steps.rows] == ["10", "11", "12"]
    assert page.grid.rows[0].toggle == {}
    assert page.grid.rows[1].toggle == {"type": "convolution", "operator": "aten::convolution_backward"}


def test_sorting_and_searching_go_over_all_pages(run: Path) -> None:
    write_rows(run, "operators", [operator(f"op_{i:03d}", self_ns=i) for i in range(60)])
    assert _names(_open(run, group="operators", sort="self_ns"))[0] == "op_000"
    last = _open(run, group="operators", page="3")
    assert last.grid is not None
    assert (_names(last)[-1], last.grid.place, last.grid.next) == ("op_000", "Page 3 of 3", None)
    assert _names(_open(run, group="operators", q="OP_04", size="50"))[0] == "op_049"
    loose = _open(run, group="operators", q="o42")
    assert loose.grid is not None
    assert (_names(loose), "in order" in loose.grid.summary) == (["op_042"], True)


def test_links_keep_the_state_and_leave_out_defaults(run: Path) -> None:
    page = _open(run, group="operators", sort="-count", q="aten", chart="bar", steps="10-11")
    assert page.grid is not None
    name_head = next(head for head in page.grid.heads if head.column.name == "name")
    assert name_head.query == {
        "group": "operators",
        "sort": "name",
        "q": "aten",
        "chart": "bar",
        "steps": "10-11",
    }
    assert [head.sorted for head in page.grid.heads if head.sorted != "none"] == ["descending"]


def test_what_the_address_gets_wrong_is_told_and_the_default_is_shown(run: Path) -> None:
    page = _open(run, group="nothing", sort="<script>", page="-4", size="7", chart="cake")
    assert len(page.state.problems) == 5
    assert _names(page)[0] == "convolution"


def test_the_chart_shows_twenty_types_and_the_rest_as_other(run: Path) -> None:
    write_rows(run, "operators", [operator(f"op{i}", type=f"type{i:02d}", self_ns=100 - i) for i in range(34)])
    pie, bars = _open(run).chart, _open(run, chart="bar").chart
    assert pie is not None
    assert bars is not None
    assert (pie.figure["data"][0]["type"], bars.figure["data"][0]["type"]) == ("pie", "bar")
    assert len(pie.rows) == 21
    assert pie.rows[-1][0] == "Other"
    assert "20 largest of 34 types" in pie.caption
    assert sum(pie.figure["data"][0]["values"]) == sum(100 - i for i in range(34))


def test_kernels_name_their_operator_and_the_steps_their_wait(run: Path) -> None:
    write_rows(run, "kernels", [kernel("gemm", operator="aten::mm", grid="[8,1,1]", occupancy_frac=0.5)])
    track = {"track": 0, "kind": "stream", "name": "s", "process": "", "order": 0, "unit": ""}
    place = {"track": 0, "depth": 0, "name": "k", "category": "kernel", "step": 10}
    slices = [{**place, "id": i, "start_ns": 100 * i, "duration_ns": 60} for i in range(2)]
    write_rows(run, "tracks", [track])
    write_rows(run, "slices", slices)
    page = _open(run, group="kernels")
    assert page.grid is not None
    cells = {head.column.name: cell for head, cell in zip(page.grid.heads, page.grid.rows[0].cells, strict=True)}
    assert (cells["occupancy_frac"].text, cells["grid"].text, cells["stream"].text) == ("50.0 %", "[8,1,1]", "7")
    assert cells["operator"].query == {"group": "operators", "q": "aten::mm", "operator": "aten::mm"}
    assert [(row.total_ns, row.busy_ns, row.wait_ns) for row in page.executions] == [(160, 120, 40)]


def test_host_operators_come_in_the_order_of_their_first_call(run: Path) -> None:
    page = _open(run, group="host")
    assert page.grid is not None
    assert [row.cells[0].text for row in page.grid.rows] == ["1", "2", "3", "4", "5", "6", "7"]


def test_modules_are_offered_only_where_the_trace_names_them(run: Path) -> None:
    assert "Modules" not in [tab.label for tab in _open(run).tabs]
    write_rows(run, "operators", [operator("aten::mm", module="net.fc")])
    page = _open(run, group="modules", type="net.fc")
    assert "Modules" in [tab.label for tab in page.tabs]
    assert _names(page) == ["net.fc", "aten::mm"]


def test_long_names_are_shortened_and_still_open(run: Path) -> None:
    name = "void " + "x" * 10_000
    write_rows(run, "operators", [operator(name)])
    page = _open(run, group="operators", operator=shorten_key(name))
    assert page.grid is not None
    cell = page.grid.rows[0].cells[0]
    assert len(cell.text) < 80
    assert len(cell.whole) <= 2000
    assert page.grid.rows[0].is_open


def test_a_run_without_a_window_names_the_option(run: Path) -> None:
    remove_tables(run, "operators", "kernels")
    edit_rank(run, signals=(Signal("window", "off", "window=None was given."),))
    page = _open(run)
    assert page.notice is not None
    assert (page.notice.state, page.grid) == ("off", None)
    assert "window=" in page.notice.remedy


def test_steps_outside_of_the_windows_are_an_empty_page(run: Path) -> None:
    page = _open(run, steps="1-3")
    assert page.notice is not None
    assert page.notice.state == "empty"


def test_kernels_whose_short_names_are_alike_can_be_told_apart(run: Path) -> None:
    names = [f"void fill<float>({kind}*, long)" for kind in ("float", "double")]
    write_rows(run, "kernels", [kernel(name) for name in names])
    page = _open(run, group="kernels")
    assert page.grid is not None
    shown = [row.cells[0].text for row in page.grid.rows]
    assert len(set(shown)) == 2
    assert all(text.startswith("fill<float>") for text in shown)


def test_a_kernel_is_named_by_its_functor_and_whole_in_the_hint(run: Path) -> None:
    whole = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16>>(int)"
    write_rows(run, "kernels", [kernel(whole)])
    page = _open(run, group="kernels")
    assert page.grid is not None
    name = page.grid.rows[0].cells[0]
    assert (name.text, name.whole) == ("vectorized_elementwise<CUDAFunctor_add<bf16>>", whole)


WORK = {"input_dtypes": '["c10::Half"]', "flops": 1e12, "moved_bytes": 1e9}


def _open_roofline(run: Path, **query: str) -> OperatorsContext:
    return build(PageRequest(open_run(run), "run", 0, (0,), {"group": "roofline", **query}))


def _use_device(run: Path, name: str) -> None:
    edit_rank(run, devices=(Device(0, name),))
    write_rows(run, "operators", [operator("aten::mm", device_self_ns=2_000_000, **WORK)])
    write_rows(run, "kernels", [kernel("gemm", operator="aten::mm")])


def test_a_known_device_gives_a_roof_with_its_source(run: Path) -> None:
    _use_device(run, "NVIDIA H100 80GB HBM3")
    page = _open_roofline(run)
    assert page.chart is not None
    assert [trace["name"] for trace in page.chart.figure["data"]] == ["H100 SXM FP16: 989 TFLOP/s", "operators"]
    assert go.Figure(page.chart.figure).to_plotly_json()["layout"]["xaxis"]["type"] == "log"
    assert "architecture whitepaper" in page.definition
    assert page.chart.rows[0][3:] == ("500 TFLOP/s", "1e+03", "compute", "50.5 %")


def test_an_unknown_device_is_named_and_rates_are_shown(run: Path) -> None:
    _use_device(run, "AMD Radeon Graphics")
    page = _open_roofline(run)
    assert page.chart is not None
    assert [trace["name"] for trace in page.chart.figure["data"]] == ["operators"]
    assert "“AMD Radeon Graphics” is not in the table" in page.definition


def test_a_cpu_run_says_why_it_has_no_roof(run: Path) -> None:
    write_rows(run, "operators", [operator("aten::mm", self_ns=2_000_000, **WORK)])
    write_rows(run, "kernels", [])
    page = _open_roofline(run)
    assert page.definition.startswith("No roof: the work ran on the CPU")
    assert page.grid is not None


def test_a_trace_without_shapes_says_how_to_record_them(run: Path) -> None:
    write_rows(run, "operators", [operator("aten::mm", input_shapes=None)])
    page = _open_roofline(run)
    assert page.notice is not None
    assert (page.notice.title, page.grid, page.chart_switch) == ("No shapes were recorded", None, ())
