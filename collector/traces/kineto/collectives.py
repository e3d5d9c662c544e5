"""Tell collectives by the names of kernels and host spans.

Libraries of collectives have names of their own. So have the kernels by which serving engines move data between GPUs
themselves: one-shot and two-shot all-reduce, dispatch and combine of experts.
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


def is_collective_kernel(name: str) -> bool:
    """Say whether a kernel moves data between devices."""
    return bool(_LIBRARY.search(name)) or (bool(_OPERATION.search(name)) and not _FUSED.match(name))


def find_collective(name: str) -> str:
    """Return the collective in the name of a kernel or a host span, such as allreduce."""
    # What a template is made of may hold other names.
    lowered = name.split("<")[0].lower().replace("_", "")
    return next((known for known in _NAMES if known in lowered), name.split("(")[0][:80])
