"""Thresholds of what is told of a trace, of samples of the machine, and of stacks that were sampled."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pyarrow as pa

from profiler_server.analysis.device.device import DeviceWork, find_idle_causes
from profiler_server.analysis.device.launches import Launches, summarize_launches
from profiler_server.analysis.memory.resources import _find_growth, _find_held_clock
from profiler_server.analysis.stacks.frames import Frame
from profiler_server.analysis.stacks.naming import find_loop, knows_loop, name_stage
from tests.support.device_work import read_work
from tests.support.traces import call, kernel
from tests.unit.diagnosis.edges.base import Edge, whole

OUTER, INNER, OTHER = (Frame(name, f"/home/me/{name}.py", 1, "") for name in ("outer", "inner", "other"))


def idle_beside_kernels(gap_ns: float) -> int:
    """Return the idle time of an unknown cause of a stream that idles for so long between two kernels."""
    times = {"start_ns": np.array([0, 1_000 + round(gap_ns)]), "end_ns": np.array([1_000, 10**9])}
    work = SimpleNamespace(track=np.zeros(2, np.int64), launch_ns=np.zeros(2, np.int64), **times)
    return find_idle_causes(cast(DeviceWork, work)).other


def launch(delay_ns: float = 10.0, call_ns: float = 10.0) -> Launches:
    with tempfile.TemporaryDirectory() as folder:
        events = [call(10, call_ns / 1e3, 1), kernel("a", 10 + (call_ns + delay_ns) / 1e3, 60, 1)]
        found = summarize_launches(read_work(Path(folder), events))
    assert found is not None
    return found


def read_clock(count: int) -> bool:
    """Say whether so many samples of a clock that is held down tell that."""
    metrics = {"clock_hz": 7e8, "throttle_flags": 2.0}
    rows = [(n, name, value) for n in range(count) for name, value in metrics.items()]
    start, metric, values = zip(*rows, strict=True)
    return _find_held_clock("gpu 0", pa.table({"start_ns": start, "metric": metric, "value": values})) is not None


def read_memory(count: int) -> bool:
    columns = {"start_ns": [1_000 + n for n in range(count)], "value": [1e9] * count}
    names = {"source": ["process"] * count, "metric": ["memory_bytes"] * count}
    return _find_growth(pa.table({**columns, **names}), 0, 2_000) is not None


def split(share: float) -> dict[tuple[Frame, ...], int]:
    """Return stacks of which so much runs in one function, and the rest in another."""
    inside = whole(1_000 * share)
    return {(OUTER, INNER): inside, (OTHER,): 1_000 - inside}


EDGES: Mapping[str, Edge] = {
    "KERNEL_WAIT_NS": Edge(30_000, lambda x: idle_beside_kernels(x) > 0),
    "LONG_DELAY_NS": Edge(100_000, lambda x: launch(delay_ns=x).late == 1),
    "LONG_CALL_NS": Edge(50_000, lambda x: launch(call_ns=x).slow == 1),
    "CLOCK_SAMPLES": Edge(10, lambda x: read_clock(whole(x))),
    "MEMORY_SAMPLES": Edge(24, lambda x: read_memory(whole(x))),
    "LEAST_SAMPLES": Edge(30, lambda x: bool(name_stage({((OUTER,), 0): whole(x)}))),
    "LOOP_FRAC": Edge(0.6, lambda x: OUTER.function in find_loop({"forward": split(x), "tail": split(1.0)})),
    "ALWAYS_FRAC": Edge(0.9, lambda x: OUTER.function in find_loop({"forward": split(x)})),
    "LEAST_OF_PHASE": Edge(3, lambda x: knows_loop({"forward": {(OUTER,): 60}, "tail": {(OTHER,): whole(x)}})),
}
