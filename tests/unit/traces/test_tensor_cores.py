"""Names of kernels as real traces have them."""

from __future__ import annotations

import pytest

from collector.traces.kineto.classify.kinds import uses_tensor_cores

WITH = (
    "volta_fp16_s884gemm_fp16_128x64_ldg8_f2f_tn",
    "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_256x64_16x4_nn_align4>",
    "void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_128x2_tn_align8>",
    "sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16",
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x64x64_warpgroupsize1x1x1_execute_segment_k_off",
    "nvjet_hsh_256x128_64x4_1x2_h_bz_coopA_NTT",
    "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cute::SM90_64x128x16_F32BF16BF16_SS_gmma",
    "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128, 4>",
    "fmha_cutlassF_f16_aligned_64x64_rf_sm80(PyTorchMemEffAttention)",
    "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x192x64_MI16x16x1_SN",
    "igemm_wrw_gtcx2_nhwc_bf16_bx0_ex1_bt256x128x16_wt32x32x8",
    "attn_fwd",
)
WITHOUT = (
    "volta_sgemm_64x64_nt",
    "ampere_sgemm_32x32_sliced1x4_tn",
    "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x32_8x5_nn_align1>",
    "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize32x32x8",
    "SubTensorOpWithCastTensor1d",
    "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>>",
    "void cudnn::bn_bw_1C11_kernel_new<float, float, float2, 512, true, 1>",
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL",
    "triton_poi_fused_add_mul_0",
)


@pytest.mark.parametrize("name", WITH)
def test_names_that_multiply_on_tensor_cores(name: str) -> None:
    assert uses_tensor_cores(name)


@pytest.mark.parametrize("name", WITHOUT)
def test_names_that_do_not(name: str) -> None:
    assert not uses_tensor_cores(name)
