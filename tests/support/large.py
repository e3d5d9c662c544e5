"""A run whose trace is too large for a page to wait for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from collector.format import parts
from collector.format.schema import layout
from profiler_server.derive.derived import AT_ONCE_SLICES
from tests.support.live import edit_rank
from tests.support.machines import H100
from tests.support.runs import MS, RunPlan, build_run, build_steps
from tests.support.tables import write_rows

LAUNCH_NS, KERNEL_NS = 20, 80
"""How long each call and each kernel takes, and half of how far they are apart."""


def build_large_run(path: Path) -> Path:
    """Write a run in which calls that launch kernels take turns on one thread, a bit over a million slices together."""
    build_run(path, RunPlan(steps=20))
    edit_rank(path, devices=(H100,))
    tracks = [("thread", "thread 1", None), ("stream", "stream 7", 0)]
    rows = [
        {"track": i, "kind": kind, "name": name, "process": "python 1", "device": device, "order": i, "unit": ""}
        for i, (kind, name, device) in enumerate(tracks)
    ]
    write_rows(path, "tracks", rows)
    begin = build_steps(RunPlan(steps=20))[9]["start_ns"] + MS
    table = parts.build_table("slices", _lay_out(AT_ONCE_SLICES + 2, begin))
    parts.write_table(table, layout.table_file(layout.rank_path(path, 0), "slices"))
    return path


def _lay_out(count: int, begin: int) -> dict[str, pa.Array]:
    ids = np.arange(count)
    is_kernel = ids % 2 == 1
    names = pa.DictionaryArray.from_arrays(pa.array(ids % 2, pa.int32()), ["cudaLaunchKernel", "gemm"])
    categories = pa.DictionaryArray.from_arrays(pa.array(ids % 2, pa.int32()), ["runtime", "kernel"])
    return {
        "id": pa.array(ids),
        "track": pa.array(ids % 2, pa.int32()),
        "depth": pa.array(np.zeros(count, np.int32)),
        "start_ns": pa.array(begin + ids * (LAUNCH_NS + KERNEL_NS) // 2),
        "duration_ns": pa.array(np.where(is_kernel, KERNEL_NS, LAUNCH_NS)),
        "name": names,
        "category": categories,
        "launched_by": pa.array(ids - 1, mask=~is_kernel),
    }
