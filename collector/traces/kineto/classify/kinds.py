"""The kind of each event, from its category and name, and what else the name of a kernel shows.

The name shows whether a kernel moves data between devices. Collective libraries have kernel names of their own. So do
serving engines for kernels that move data between GPUs: one-shot and two-shot all-reduce, dispatch and combine of
experts.

A trace does not record the use of tensor cores (NVIDIA) or matrix cores (AMD). A kernel without a hint in its name
(most Triton kernels) is considered not to use such cores.
"""

from __future__ import annotations

import re
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from collector.traces.kineto.decode.digest import Columns
from collector.traces.kineto.decode.log import Log

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
"""Exceptions among names that match _MULTIPLIES: NVIDIA computes full FP32 without tensor cores."""


def is_collective_kernel(name: str) -> bool:
    return bool(_LIBRARY.search(name)) or (bool(_OPERATION.search(name)) and not _FUSED.match(name))


def find_collective(name: str) -> str:
    """Return the collective in the name of a kernel or host span, such as allreduce; else the name itself, shortened."""
    # What a template is made of may hold other names.
    lowered = name.split("<")[0].lower().replace("_", "")
    return next((known for known in _NAMES if known in lowered), name.split("(")[0][:80])


def uses_tensor_cores(name: str) -> bool:
    return bool(_MULTIPLIES.search(name)) and not _WITHOUT.search(name)


class Kind(IntEnum):
    """Kinds of slice. If two slices of a thread have the same start and end, the lower kind encloses the higher."""

    STEP = 0
    PYTHON = 1
    MODULE = 2
    ANNOTATION = 3
    OPERATOR = 4
    COMMUNICATION = 5
    RUNTIME = 6
    OVERHEAD = 7
    OTHER = 8
    KERNEL = 9
    COLLECTIVE = 10
    MEMCPY = 11
    MEMSET = 12
    DEVICE_ANNOTATION = 13
    SYNC = 14


SLICE_CATEGORIES = (
    *("annotation", "python", "module", "annotation", "operator", "communication", "runtime", "overhead", "other"),
    *("kernel", "communication", "memcpy", "memset", "annotation", "other"),
)
"""The category of each kind, in order."""
HOST_WORK = (Kind.ANNOTATION, Kind.OPERATOR, Kind.COMMUNICATION)
OPERATORS = (Kind.OPERATOR, Kind.COMMUNICATION)
"""The kinds of operators. They leave out annotations, which only name the work of operators."""
DEVICE_WORK = (Kind.KERNEL, Kind.COLLECTIVE, Kind.MEMCPY, Kind.MEMSET)
FIRST_DEVICE_KIND = Kind.KERNEL

_CATEGORIES = {
    Kind.OPERATOR: ("cpu_op", "operator"),
    Kind.ANNOTATION: ("user_annotation",),
    Kind.PYTHON: ("python_function",),
    Kind.KERNEL: ("kernel", "concurrent_kernel", "mtia_ccp_events"),
    Kind.MEMCPY: ("gpu_memcpy", "memcpy"),
    Kind.MEMSET: ("gpu_memset", "memset"),
    Kind.DEVICE_ANNOTATION: ("gpu_user_annotation",),
    Kind.SYNC: ("cuda_sync",),
    Kind.OVERHEAD: ("overhead",),
    Kind.RUNTIME: ("runtime", "hip", "hpu_op"),
}
_BY_CATEGORY = {category: kind for kind, categories in _CATEGORIES.items() for category in categories}
# cuda_runtime, cuda_driver, xpu_runtime, mtia_runtime, hip_runtime, privateuse1_runtime …
_RUNTIME = re.compile(r"_(runtime|driver)$", re.IGNORECASE)
_STEP = re.compile(r"ProfilerStep\s*#\s*(\d+)$")
# Old files give annotations the category of operators.
_ANNOTATION = re.compile(r"Optimizer\.|enumerate\(DataLoader\)|DistributedDataParallel\.|## |nccl:|gloo:|mpi:")
_HOST_COLLECTIVE = re.compile(r"(gloo|mpi|ucc|nccl|xccl|hccl|rccl):")


KindColumn = npt.NDArray[np.int8]


def classify(columns: Columns, log: Log) -> KindColumn:
    """Return the kind of each event. If the trace has collective kernels, collectives on the host are annotations."""
    names, categories = [str(name) for name in log.names], [str(name or "") for name in log.categories]
    width = max(len(names), 1)
    seen = [np.unique(columns.category[rows] * width + columns.name[rows]) for rows in log.scratch.blocks(len(columns))]
    pairs = np.unique(np.concatenate(seen)) if seen else np.empty(0, np.int64)
    found = [_find_kind(categories[pair // width], names[pair % width]) for pair in pairs.tolist()]
    if any(kind is Kind.COLLECTIVE for kind in found):
        found = [Kind.ANNOTATION if kind is Kind.COMMUNICATION else kind for kind in found]
    kinds = np.array([int(kind) for kind in found], np.int8)
    kind = np.empty(len(columns), np.int8)
    for rows in log.scratch.blocks(len(columns)):
        kind[rows] = kinds[np.searchsorted(pairs, columns.category[rows] * width + columns.name[rows])]
    return kind


def _find_kind(category: str, name: str) -> Kind:
    lowered = category.lower()
    kind = _BY_CATEGORY.get(lowered, Kind.RUNTIME if _RUNTIME.search(lowered) else Kind.OTHER)
    if kind is Kind.PYTHON:
        return Kind.MODULE if name.startswith("nn.Module: ") else kind
    if kind is Kind.KERNEL:
        return Kind.COLLECTIVE if is_collective_kernel(name) else kind
    if kind in (Kind.OPERATOR, Kind.ANNOTATION):
        if _STEP.match(name):
            return Kind.STEP
        if _HOST_COLLECTIVE.match(name):
            return Kind.COMMUNICATION
        return Kind.ANNOTATION if _ANNOTATION.match(name) else kind
    return kind


def read_step(name: str) -> int:
    """Return the step number in the name of a step marker, -1 for any other name."""
    match = _STEP.match(name)
    return min(int(match.group(1)), (1 << 62)) if match else -1
