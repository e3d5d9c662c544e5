"""Kernel names as profilers write them, as they are shown, and what they tell of precision."""

from __future__ import annotations

from pathlib import Path

import pytest

from collector.format.run import RankRun, open_run
from profiler_server.analysis.operators.kernels import find_full_precision, name_kernels, shorten_kernel
from tests.support.runs import RunPlan, build_run
from tests.support.tables import remove_tables, write_rows

_LAMBDA = "{lambda()#1}::operator()() const::"
_COPY = f"at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{_LAMBDA}{{lambda()#7}}::operator()() const::{{lambda(float)#1}}"


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16>, "
            "at::detail::Array<char*, 3> >(int, at::native::CUDAFunctor_add<c10::BFloat16>, at::detail::Array<char*, 3>)",
            "vectorized_elementwise<CUDAFunctor_add<bf16>>",
        ),
        (
            f"void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl<{_COPY}>(at::TensorIteratorBase&, "
            f"{_COPY} const&)::{{lambda(int)#1}}>(int, at::native::gpu_kernel_impl<{_COPY}>(at::TensorIteratorBase&, {_COPY} "
            "const&)::{lambda(int)#1})",
            "elementwise<direct_copy_kernel_cuda#7<float>>",
        ),
        (
            "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::"
            "TensorListMetadata<2>, at::native::(anonymous namespace)::BinaryOpListAlphaFunctor<float, 2, 2, 0>, "
            "std::plus<float>, float>(at::native::(anonymous namespace)::TensorListMetadata<2>, float)",
            "multi_tensor_apply<BinaryOpListAlphaFunctor<float, 2, 2, 0>, plus<float>, float>",
        ),
        (
            "void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, true, false>(float*, float const*, int)",
            "softmax_warp_forward<float, 10, true, false>",
        ),
        (
            "std::enable_if<!(false), void>::type internal::gemvx::kernel<int, int, float, float, 7>(float const)",
            "gemvx::kernel<int, float, 7>",
        ),
        (
            "ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long)",
            "ncclKernel_AllReduce_RING_LL_Sum_float",
        ),
        (
            "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x192x64_MI16x16x1_SN_LDSB1_AFC1_WS64_WG32_8_1",
            "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_MT256x192x64…_WG32_8_1",
        ),
        ("triton_poi_fused_add_0", "triton_poi_fused_add_0"),
        ("Memcpy HtoD (Pageable -> Device)", "Memcpy HtoD (Pageable -> Device)"),
        ("", ""),
    ],
)
def test_what_tells_kernels_apart_is_left(name: str, shown: str) -> None:
    assert shorten_kernel(name) == shown


@pytest.mark.parametrize(
    "name",
    ["f<" * 5_000, "f" + "<" * 40 + ">" * 40, "f<(>)", "f(" * 3_000 + ")" * 3_000, "a<b>>(c)<", "<>()<>", "x<>()"],
)
def test_what_cannot_be_taken_apart_is_left_whole_or_at_least_named(name: str) -> None:
    assert shorten_kernel(name)


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


def test_collectives_and_what_is_rounded_to_tf32_count_apart(run: Path) -> None:
    assert share(run, ampere_sgemm_128x64_nn=30, elementwise_kernel=10, ncclDevKernel_AllReduce=400) == 0.75
    assert share(run, sm80_xmma_gemm_tf32f32_tf32f32_f32=10, sm80_xmma_gemm_f32f32_f32f32_f32=10) == 0.5
    assert share(run) is None
    assert share(run, ncclDevKernel_AllReduce=400) is None
    remove_tables(run, "kernels")
    assert find_full_precision(rank_of(run)) is None


def test_kernels_whose_short_names_are_alike_get_what_tells_them_apart() -> None:
    gemm = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize{}x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel"
    names = [
        gemm.format(128),
        gemm.format(256),
        *(f"void at::native::vectorized_elementwise_kernel<{n}, Add>" for n in (4, 8)),
    ]
    for limit in (30, 72):
        shown = name_kernels(names, limit)
        assert len(set(shown)) == len(names)
        assert "128" in shown[0]
        assert "256" in shown[1]
        assert max(map(len, shown)) <= limit + 32
    assert name_kernels(["gemm", "gemm"], 30) == ["gemm", "gemm"]  # one kernel of two operators
