"""What counts as a collective, and what is known of each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from collector.traces import import_trace
from profiler_server.analysis.ranks.collectives import summarize_collectives
from profiler_server.analysis.ranks.ranks import summarize_ranks
from tests.support.reading import read_events
from tests.support.traces import annotation, call, kernel, step, write_trace


@pytest.mark.parametrize(
    ("name", "collective"),
    [
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
    ],
)
def test_kernels_that_move_data_between_devices_are_communication(tmp_path: Path, name: str, collective: str) -> None:
    events = [step(1, 0, 100), call(5, 1, 1), kernel(name, 10, 20, 1)]
    tables = read_events(tmp_path, events).tables
    assert tables["collectives"]["name"].to_pylist() == ([collective] if collective else [])
    assert tables["kernels"]["collective"].to_pylist() == [bool(collective)]
    assert tables["slices"]["category"].to_pylist()[-1] == ("communication" if collective else "kernel")


def test_a_single_trace_tells_bytes_and_bandwidths_of_its_collectives(tmp_path: Path) -> None:
    told: dict[str, Any] = {
        "Collective name": "_allgather_base",
        "dtype": "BFloat16",
        "Group size": 4,
        "In msg nelems": 1000,
        "Out msg nelems": 4000,
    }
    gather = kernel("ncclDevKernel_AllGather", 10, 20, 1, **told)
    span = annotation("nccl:all_to_all", 50, 30, **{"Input Dims": [[8, 1000]], "Input type": ["float"]})
    events = [step(1, 0, 300), call(5, 1, 1), gather, span, call(60, 1, 2), kernel("ncclKernel_SendRecv", 100, 16, 2)]
    # Without a group size nobody knows how much a gather brings together.
    bare = annotation("nccl:_all_gather_base", 150, 20, **{"Input Dims": [[1000]], "Input type": ["float"]})
    events += [bare, call(155, 1, 3), kernel("ncclKernel_AllGather", 200, 10, 3)]
    run = import_trace(write_trace(tmp_path / "t.json", events), tmp_path / "run")
    rows = run.table("collectives").to_pylist()
    assert [(row["name"], row["bytes"]) for row in rows] == [
        ("_allgather_base", 8_000),
        ("alltoall", 32_000),
        ("allgather", None),
    ]
    found = {row.name: row for row in summarize_collectives(summarize_ranks(run))}
    assert found["_allgather_base"].algorithm_bytes_per_s == pytest.approx(8_000 / 20e-6)
    assert found["_allgather_base"].bus_bytes_per_s == pytest.approx(8_000 / 20e-6 * 3 / 4)
    assert found["alltoall"].algorithm_bytes_per_s == pytest.approx(2e9)
    assert found["alltoall"].bus_bytes_per_s is None
    assert found["allgather"].algorithm_bytes_per_s is None
