"""The utilisation of a device: numerator by hand, the peak with its source, and when nothing is said."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from collector.format.run import open_run
from collector.format.schema.manifest import Device
from collector.traces.importing import import_trace
from profiler_server.analysis.operators.mfu import measure_mfu
from profiler_server.diagnosis.use_sentences import say_use
from profiler_server.facts.useful import ModelUse
from profiler_server.report import build_report
from profiler_server.report.text import render_text
from tests.support.live import edit_rank
from tests.support.must import must
from tests.support.overall_page import show, stat
from tests.support.recording import record
from tests.support.runs import MS, RunPlan, build_run
from tests.support.tables import kernel, operator, write_rows

GEMM = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64"
STEP_NS = 64 * MS
TERA = 1e12


def _product(name: str = "aten::mm", dtypes: str = '["c10::BFloat16"]', **columns: Any) -> dict[str, Any]:
    row = {"type": "matmul", "phase": "forward", "input_dtypes": dtypes, "flops": 20 * TERA, "device_self_ns": 900}
    return operator(name, **{**row, **columns})


def _kernel(name: str = GEMM, **columns: Any) -> dict[str, Any]:
    return kernel(name, **{"operator": "aten::mm", "tensor_core": True, "total_ns": 900, **columns})


def _build(path: Path, device: str, operators: Sequence[dict[str, Any]], kernels: Sequence[dict[str, Any]]) -> Path:
    run = build_run(path, RunPlan())
    edit_rank(run, devices=(Device(0, device),) if device else ())
    write_rows(run, "operators", operators)
    write_rows(run, "kernels", kernels)
    return run


H100 = "NVIDIA H100 80GB HBM3"


def _measure(path: Path, *operators: dict[str, Any], kernels: Sequence[Any] = (), device: str = H100) -> ModelUse:
    run = _build(path / "run", device, operators or [_product()], kernels or [_kernel()])
    return must(measure_mfu(open_run(run).rank(0)))


def test_the_figure_is_operations_over_step_and_dense_peak(tmp_path: Path) -> None:
    use = _measure(tmp_path)
    assert use.frac == pytest.approx(20 * TERA / (STEP_NS / 1e9) / (989.4 * TERA), rel=0.01)
    assert use.peak_flops_per_s == pytest.approx(989.4 * TERA)
    assert (use.flops_per_step, use.steps, use.covered_frac, use.precisions) == (20 * TERA, 1, 1.0, {"bf16": 1.0})
    assert use.source == "NVIDIA H100 architecture whitepaper"


def test_each_precision_counts_against_its_own_peak(tmp_path: Path) -> None:
    use = _measure(tmp_path, _product(), _product("aten::addmm", '["float"]', flops=20 * TERA / 3))
    at_peak_s = 20 / 989.4 + 20 / 3 / 66.9
    assert use.frac == pytest.approx(at_peak_s / (STEP_NS / 1e9), rel=0.01)
    assert must(use.precisions)["bf16"] == pytest.approx(0.75)
    assert "BF16 (75.0 %) and FP32 (25.0 %)" in say_use(use, "step")


def test_neither_the_update_nor_what_is_no_product_counts(tmp_path: Path) -> None:
    muon = _product("aten::addmm", phase="optimizer")
    use = _measure(tmp_path, _product(), muon, _product("aten::mul", type="elementwise"), _product(step=None))
    assert use.flops_per_step == 20 * TERA


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"device": "Some Card 9000"}, "the peak of Some Card 9000 is not known"),
        ({"device": "", "kernels": []}, ""),
        ({"operators": [_product(dtypes='["double"]')]}, "the peak of NVIDIA H100 80GB HBM3 for fp64 is not known"),
        ({"operators": [_product(), _product("aten::_scaled_mm")]}, "the model is quantised (aten::_scaled_mm)"),
        (
            {"kernels": [_kernel(), _kernel("my_flash_attention_kernel", operator=None, total_ns=300)]},
            "operations are known for 75.0 % of the time of kernels that multiply, and 75.0 % of all kernels",
        ),
        (
            {"kernels": [_kernel(), kernel("fused_of_mine", total_ns=9000)]},
            "operations are known for 100.0 % of the time of kernels that multiply, and 9.1 % of all kernels",
        ),
    ],
    ids=["device", "processor", "precision", "quantised", "products unknown", "little known"],
)
def test_nothing_is_said_where_a_part_is_unknown(changed: dict[str, Any], reason: str, tmp_path: Path) -> None:
    operators = changed.get("operators", [_product()])
    run = _build(tmp_path / "run", changed.get("device", H100), operators, changed.get("kernels", [_kernel()]))
    use = must(measure_mfu(open_run(run).rank(0)))
    assert use.frac is None
    assert use.missing.startswith(reason or "no device was in use")
    assert "MFU" not in [figure.label for figure in must(show(run).stats.body)]


@pytest.mark.parametrize("share", [0.89, 0.91])
def test_most_of_the_time_of_products_must_be_known(share: float, tmp_path: Path) -> None:
    other = _kernel("flash_fwd", operator=None, total_ns=round(900 / share) - 900)
    assert (_measure(tmp_path, kernels=[_kernel(), other]).frac is not None) is (share > 0.9)


@pytest.mark.parametrize("share", [0.19, 0.21])
def test_products_must_take_some_of_the_time_of_all_kernels(share: float, tmp_path: Path) -> None:
    other = kernel("fused_of_mine", total_ns=round(900 / share) - 900)
    assert (_measure(tmp_path, kernels=[_kernel(), other]).frac is not None) is (share > 0.2)


def test_every_face_shows_numerator_denominator_and_source(tmp_path: Path) -> None:
    run = _build(tmp_path / "run", H100, [_product()], [_kernel()])
    said = "20.0 TFLOP a step of 64.0 ms, of 989 TFLOP/s: the dense peak for BF16 (NVIDIA H100 architecture whitepaper)"
    page = show(run)
    assert stat(page, "MFU") == "31.6 %"
    assert said in [figure.note for figure in must(page.stats.body)]
    report = build_report(open_run(run))
    assert f"\n  MFU       31.6 %: {said}\n" in render_text(report, open_run(run))
    assert report["ranks"][0]["mfu"]["flops_per_step"] == 20 * TERA


def test_the_report_says_why_the_figure_of_a_device_is_unknown(tmp_path: Path) -> None:
    run = open_run(_build(tmp_path / "run", "Some Card 9000", [_product()], [_kernel()]))
    assert "\n  MFU       unknown: the peak of Some Card 9000 is not known\n" in render_text(build_report(run), run)


BATCH, LENGTH, WIDTH, LAYERS, WORDS = 4, 16, 32, 2, 50


class _Model(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True)
        self.words, self.head = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WORDS)
        self.layers = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        scores = self.head(self.layers(self.words(ids)))
        assert isinstance(scores, torch.Tensor)
        return scores


def test_a_recorded_transformer_has_six_operations_for_each_weight_and_token(tmp_path: Path) -> None:
    model = _Model()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def loop() -> None:
        for _ in range(8):
            optimizer.zero_grad()
            model(torch.randint(WORDS, (BATCH, LENGTH))).square().mean().backward()
            optimizer.step()

    use = must(measure_mfu(record(tmp_path, loop, window=(4, 2)).run.rank()))
    weights = sum(each.numel() for name, each in model.named_parameters() if each.ndim == 2 and "words" not in name)
    # Attention: two products forward, five backward, of 2 · length² · width each.
    attention = 7 * 2 * BATCH * LENGTH**2 * WIDTH * LAYERS
    assert use.flops_per_step == pytest.approx(6 * weights * BATCH * LENGTH + attention, rel=0.01)
    assert (use.frac, use.steps) == (None, 2)


SHARED = Path(__file__).parents[3] / "golden" / "traces"


def test_a_trace_of_a_processor_has_a_numerator_alone(tmp_path: Path) -> None:
    use = must(measure_mfu(import_trace(SHARED / "cnn_cpu.json.gz", tmp_path / "run").rank(0)))
    assert use.frac is None
    assert must(use.flops_per_step) > 0
