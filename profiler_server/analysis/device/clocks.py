"""Whether a GPU's clock was held down while steps ran, and by how much."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from collector.format.parts import find_files
from collector.format.run import RankRun
from collector.format.schema.errors import RunError
from profiler_server.diagnosis.limits.traces import CLOCK_SAMPLES
from profiler_server.facts.machine import HeldClock

HEAT, HARDWARE = 2, 4
"""Flags of `throttle_flags`; the power limit is what a busy GPU runs into, and no fault."""


def read_held_clock(rank: RankRun, start_ns: int, end_ns: int) -> HeldClock | None:
    """Return the GPU that lost most of its clock between two times, None where none was held down."""
    try:
        if not find_files(rank.folder, "resources"):
            return None
        rows = rank.table("resources", ("start_ns", "source", "metric", "value"))
    except RunError:
        return None
    metric = rows["metric"].cast(pa.string())
    known = pc.or_(pc.equal(metric, "clock_hz"), pc.equal(metric, "throttle_flags"))
    inside = pc.and_(pc.greater_equal(rows["start_ns"], start_ns), pc.less_equal(rows["start_ns"], end_ns))
    rows = rows.filter(pc.and_(known, inside))
    sources = rows["source"].cast(pa.string())
    found = [_judge(str(name), rows.filter(pc.equal(sources, name))) for name in pc.unique(sources).to_pylist()]
    return max((entry for entry in found if entry is not None), key=lambda entry: entry.lost_frac, default=None)


def _judge(gpu: str, rows: pa.Table) -> HeldClock | None:
    values = {}
    for name in ("clock_hz", "throttle_flags"):
        chosen = rows.filter(pc.equal(rows["metric"].cast(pa.string()), name))
        values[name] = dict(zip(chosen["start_ns"].to_pylist(), chosen["value"].to_pylist(), strict=True))
    both = sorted(values["clock_hz"].keys() & values["throttle_flags"].keys())
    if len(both) < CLOCK_SAMPLES:
        return None
    clock = np.array([values["clock_hz"][at] for at in both], np.float64)
    flags = np.array([values["throttle_flags"][at] for at in both]).astype(np.int64)
    held = (flags & (HEAT | HARDWARE)) > 0
    if not held.any():
        return None
    usual = float(clock[~held].max()) if (~held).any() else 0.0
    return HeldClock(gpu, float(held.mean()), float(np.median(clock[held])), usual, bool((flags & HEAT).any()))
