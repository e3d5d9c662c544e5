"""The share of products in full precision, by the names that NVIDIA's libraries give their kernels."""

from __future__ import annotations

from pathlib import Path

import pytest

from collector.format.run import RankRun, open_run
from profiler_server.analysis.operators.kernels import find_full_precision
from tests.support.runs import RunPlan, build_run
from tests.support.tables import remove_tables, write_rows


def share(run: Path, **times_ns: int) -> float | None:
    fixed = {"step": 1, "device": 0, "stream": 7, "tensor_core": False, "count": 1, "min_ns": 1, "max_ns": 1}
    rows = [
        fixed | {"name": name, "total_ns": time_ns, "collective": name.startswith("nccl")}
        for name, time_ns in times_ns.items()
    ]
    write_rows(run, "kernels", rows)
    return find_full_precision(rank_of(run))


def rank_of(run: Path) -> RankRun:
    return open_run(run).rank(0)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return build_run(tmp_path / "run", RunPlan(steps=3))


def test_collectives_count_neither_way(run: Path) -> None:
    assert share(run, ampere_sgemm_128x64_nn=30, elementwise_kernel=10, ncclDevKernel_AllReduce=400) == 0.75


def test_what_tensor_cores_round_to_tf32_is_not_in_full_precision(run: Path) -> None:
    assert share(run, sm80_xmma_gemm_tf32f32_tf32f32_f32=10, sm80_xmma_gemm_f32f32_f32f32_f32=10) == 0.5


def test_without_kernels_there_is_no_share(run: Path) -> None:
    assert share(run) is None
    assert share(run, ncclDevKernel_AllReduce=400) is None
    remove_tables(run, "kernels")
    assert find_full_precision(rank_of(run)) is None
