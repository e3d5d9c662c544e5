"""What the slices of the detailed windows say about executions: the device by step, host operators in their order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from collector.format.intervals import Ints
from collector.format.run import RankRun


@dataclass(frozen=True)
class DeviceStep:
    """Device work of one step. `total_ns` runs from the first start to the last end; what is not busy is wait."""

    step: int
    count: int
    total_ns: int
    busy_ns: int
    wait_ns: int


def summarize_device_steps(rank: RankRun) -> tuple[DeviceStep, ...]:
    """Return one row per step with device work, in order. Raises as `RankRun.table` does."""
    tracks = rank.table("tracks", ("track", "kind"))
    streams = tracks.filter(pc.equal(tracks["kind"], "stream"))["track"]
    if not len(streams):
        return ()
    on_device = pc.field("track").isin(streams.combine_chunks()) & (pc.field("duration_ns") > 0)
    slices = rank.table("slices", ("step", "start_ns", "duration_ns"), where=on_device & pc.field("step").is_valid())
    slices = slices.sort_by([("step", "ascending"), ("start_ns", "ascending")])
    steps, starts, lengths = (slices[name].to_numpy() for name in slices.column_names)
    numbers, firsts = np.unique(steps, return_index=True)
    bounds = [*firsts.tolist(), len(steps)]
    return tuple(
        _summarize_step(int(number), starts[a:b], starts[a:b] + lengths[a:b])
        for number, a, b in zip(numbers, bounds[:-1], bounds[1:], strict=True)
    )


def _summarize_step(step: int, starts: Ints, ends: Ints) -> DeviceStep:
    """Sum the union of intervals that are sorted by start: each adds what reaches past all before it."""
    reached = np.maximum.accumulate(ends)
    before = np.concatenate((starts[:1], reached[:-1]))
    busy = int(np.maximum(ends - np.maximum(starts, before), 0).sum())
    total = int(reached[-1] - starts[0])
    return DeviceStep(step, len(starts), total, busy, total - busy)


def order_operators(rank: RankRun, step: int) -> pa.Table:
    """Return the columns name and order: operators numbered from 1 by when they first started in that step.

    Raises as `RankRun.table` does.
    """
    where = (pc.field("step") == step) & (pc.field("category") == "operator")
    slices = rank.table("slices", ("name", "start_ns"), where=where)
    firsts = slices.group_by("name", use_threads=False).aggregate([("start_ns", "min")]).sort_by("start_ns_min")
    order = pa.array(np.arange(1, firsts.num_rows + 1), pa.int64())
    return pa.table({"name": firsts["name"].cast(pa.string()), "order": order})
