"""Kernel names as profilers write them, and as they are shown."""

from __future__ import annotations

import pytest

from profiler_server.analysis.operators.kernels import shorten_kernel

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
