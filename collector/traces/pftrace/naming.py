"""Categories and arguments under the names that Kineto gives them."""

from __future__ import annotations

import re

from collector.traces.pftrace.state import Track

# Early builds of torch's own writer have no categories. What an event is shows in its arguments.
_SHOWN_BY = (
    (b'"cuda_sync_kind":', "cuda_sync"),
    (b'"cbid":', "cuda_runtime"),
    (b'"Python id":', "python_function"),
    (b'"grid":', "kernel"),
    (b'"External id":', "cpu_op"),
    (b'"Ev Idx":', "cpu_op"),
)
# The categories of rocprofv3 and what they are here.
_CATEGORIES = {
    "hip_api": "hip_runtime",
    "hsa_api": "hsa_runtime",
    "rccl_api": "rccl_runtime",
    "marker_api": "user_annotation",
    "kernel_dispatch": "kernel",
    "memory_copy": "gpu_memcpy",
}
_KEYS = ((b'"corr_id":', b'"correlation":'), (b'"stream_ID":', b'"stream":'), (b'"copy_bytes":', b'"bytes":'))
_AGENT = re.compile(rb'"(?:dst_)?agent":"\D*(\d{1,9})')


def find_category(name: bytes, arguments: bytes, track: Track) -> str:
    """Return the category of an event that has none, "" if nothing shows it."""
    if track.thread_name == b"Overhead":
        return "overhead"
    if name.startswith((b'"Memcpy', b'"Memset')) and b'"stream":' in arguments:
        return "gpu_memcpy" if name.startswith(b'"Memcpy') else "gpu_memset"
    return next((category for key, category in _SHOWN_BY if key in arguments), "")


def rename_arguments(category: str, arguments: bytes) -> tuple[str, bytes]:
    """Return category and arguments as Kineto names them. A quote inside of a text has a backslash, so no text changes."""
    if (known := _CATEGORIES.get(category)) is None:
        return category, arguments
    for old, new in _KEYS:
        arguments = arguments.replace(old, new)
    if known in ("kernel", "gpu_memcpy") and (agent := _AGENT.search(arguments)):
        arguments += b',"device":' + agent[1]
    return known, arguments
