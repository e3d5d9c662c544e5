"""What the names of operators and kernels say: family, collective, tensor cores."""

from __future__ import annotations

import pytest

from collector.format.words import FAMILIES
from collector.traces.families import find_family
from collector.traces.kineto.classify.kinds import find_collective, is_collective_kernel, uses_tensor_cores

OPERATORS = {
    "matmul": "aten::mm aten::addmm aten::linear aten::bmm",
    "convolution": "aten::conv2d aten::convolution_backward aten::miopen_convolution",
    "attention": "aten::_flash_attention_forward aten::scaled_dot_product_attention",
    "normalization": "aten::native_layer_norm aten::cudnn_batch_norm_backward",
    "activation": "aten::relu_ aten::gelu aten::_softmax",
    "pooling": "aten::max_pool2d_with_indices",
    "elementwise": "aten::add_ aten::mul aten::pow",
    "reduction": "aten::sum aten::mean",
    "copy": "aten::copy_ aten::to aten::cat",
    "memory": "aten::empty_strided aten::view",
    "loss": "aten::nll_loss_forward aten::cross_entropy_loss",
    "embedding": "aten::embedding",
    "indexing": "aten::index_select",
    "random": "aten::bernoulli_ aten::native_dropout",
    "optimizer": "aten::_foreach_addcdiv_",
    "communication": "c10d::allreduce_",
    "autograd": "torch::autograd::AccumulateGrad MmBackward0",
    "other": "my::thing",
}
COLLECTIVES = (
    ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "allreduce"),
    ("ncclKernel_ReduceScatter_RING_LL_Sum_bf16", "reducescatter"),
    ("void dpsk::ep::internode::dispatch<false, 8, true, 8>(int4*, float*, long*)", "dispatch"),
    ("void dpsk::ep::internode::combine<false, 8, __nv_bfloat16, 8>(int4*)", "combine"),
    ("void deep_ep::intranode::notify_dispatch<8>(int const*, int*)", "dispatch"),
    ("void deep_ep::internode_ll::combine<7168>(void*)", "combine"),
    ("nvshmemi_transfer_amo_nonfetch", "nvshmemi_transfer_amo_nonfetch"),
    ("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*)", "reduce"),
    ("void tensorrt_llm::kernels::twoShotAllReduceKernel<__half, 8>(AllReduceParams)", "allreduce"),
    ("void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<1, __half>()", "allreduce"),
    ("void multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*)", "allreduce"),
    ("void two_shot_all_reduce_kernel_inplace<float, 16>(float**)", "allreduce"),
    ("oneapi::ccl::allgather_kernel", "allgather"),
    ("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float> >()", ""),
    ("triton_red_fused__to_copy_all_reduce_mean_7", ""),
    ("void softmax_warp_forward<float, warpAllReduce>(float*)", ""),
    ("void dpsk::ep::cuda::get_dispatch_layout<256, 32, 8>(long const*)", ""),
    ("void cub::DeviceReduceByKeyKernel<cub::DispatchReduceByKey<long*> >", ""),
    ("ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn", ""),
)
WITH_TENSOR_CORES = (
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


@pytest.mark.parametrize("family", OPERATORS)
def test_operator_has_its_family(family: str) -> None:
    assert family in FAMILIES
    assert {find_family(name) for name in OPERATORS[family].split()} == {family}
    assert find_family("autograd::engine::evaluate_function: MmBackward0") == "autograd"


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("my sum of losses", "annotation"),
        ("Optimizer.step#AdamW.step", "optimizer"),
        ("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", "annotation"),
    ],
)
def test_names_of_the_users_own_are_annotations(name: str, family: str) -> None:
    assert find_family(name, annotation=True) == family


def test_families_are_named_once() -> None:
    assert len(set(FAMILIES)) == len(FAMILIES)


@pytest.mark.parametrize(("name", "collective"), COLLECTIVES)
def test_kernels_that_move_data_between_devices_are_collectives(name: str, collective: str) -> None:
    assert (find_collective(name) if is_collective_kernel(name) else "") == collective


@pytest.mark.parametrize("name", [*WITH_TENSOR_CORES, *WITHOUT])
def test_names_tell_what_multiplies_on_tensor_cores(name: str) -> None:
    assert uses_tensor_cores(name) == (name in WITH_TENSOR_CORES)
