"""What the name of a kernel says: whether it moves data between devices, and whether it multiplies on tensor cores.

Libraries of collectives have names of their own. So have the kernels by which serving engines move data between GPUs
themselves: one-shot and two-shot all-reduce, dispatch and combine of experts.
A trace does not say whether tensor cores (NVIDIA) or matrix cores (AMD) were used, so a kernel whose name is silent
(most of what Triton compiles) counts as one that does not.
"""

from __future__ import annotations

import re

_LIBRARY = re.compile(
    r"nccl|rccl|msccl|oneccl|oneapi::ccl|\bccl_|xccl|hccl|nvshmem|rocshmem|ishmem|deep_?ep|"
    r"\bep::(intranode|internode|internode_ll|legacy|elastic)::",
    re.IGNORECASE,
)
# A compiler names a fused kernel after all that it holds, and a warp or a block may reduce within itself.
_OPERATION = re.compile(
    r"(?<!warp)(?<!block)(?<!warp_)(?<!block_)(all_?reduce|reduce_?scatter|all_?gather|all_?to_?all|all2all)|"
    r"cross_device_reduce|(one|two)_?shot_?(all|push|pull)|multimem_|quick_?reduce|userbuffers|lamport",
    re.IGNORECASE,
)
_FUSED = re.compile(r"triton_(poi|per|red|for|mm|tem)_fused", re.IGNORECASE)
_NAMES = (
    *("allreduce", "allgather", "reducescatter", "alltoall", "all2all", "broadcast", "sendrecv"),
    *("dispatch", "combine", "notify", "send", "recv", "reduce"),
)
_MULTIPLIES = re.compile(
    # cuBLAS, cuDNN and CUTLASS: h884, s1688, s16816, s161616, tensorop, wmma, xmma, hmma, imma; sm90 and up: gmma,
    # nvjet, tcgen05, utcmma; DeepGEMM and Marlin.
    r"884|1688|16816|161616|tensorop(?![A-Z])|[wxhidg]mma|nvjet|tcgen05|utcmma|umma|sm(90|100|103|120)_.*gemm"
    r"|deep_gemm|marlin|_tc_"
    # Flash attention, of CUDA, of Composable Kernel, and of AOTriton.
    r"|flash_(fwd|bwd)|fmha|^attn_(fwd|bwd)|^bwd_kernel_d[kq]|fused_attention"
    # AMD: MFMA in Tensile's MI16x16 names, XDL operations, MIOpen's igemm (gtcx).
    r"|_MI\d+x\d+x\d+|mfma|xdl|gtcx"
)
_WITHOUT = re.compile(r"simt|(?<!t)f32f32_f32f32_f32")
"""Of names that fit: FP32 in full is computed without tensor cores on NVIDIA."""


def is_collective_kernel(name: str) -> bool:
    """Say whether a kernel moves data between devices."""
    return bool(_LIBRARY.search(name)) or (bool(_OPERATION.search(name)) and not _FUSED.match(name))


def find_collective(name: str) -> str:
    """Return the collective in the name of a kernel or a host span, such as allreduce."""
    # What a template is made of may hold other names.
    lowered = name.split("<")[0].lower().replace("_", "")
    return next((known for known in _NAMES if known in lowered), name.split("(")[0][:80])


def uses_tensor_cores(name: str) -> bool:
    return bool(_MULTIPLIES.search(name)) and not _WITHOUT.search(name)
