"""How much of a device's memory a run took at most."""

from __future__ import annotations

import pyarrow.compute as pc

from collector.format.run import RankRun
from collector.format.schema.errors import TableMissingError


def find_peak_share(rank: RankRun) -> float | None:
    """Return the most that was held of the memory of a device, as a share; None where either is not known.

    What the caching allocator holds counts where it was recorded. Raises as `RankRun.table` does.
    """
    sizes = {entry.index: entry.memory_bytes for entry in rank.manifest.devices if entry.memory_bytes}
    try:
        rows = rank.table("memory", columns=["device", "allocated_bytes", "reserved_bytes"])
    except TableMissingError:
        return None
    rows = rows.filter(pc.greater_equal(rows["device"], 0))
    if not rows.num_rows:
        return None
    held = pc.max_element_wise(rows["allocated_bytes"], rows["reserved_bytes"])
    peaks = rows.append_column("held", held).group_by("device").aggregate([("held", "max")]).to_pylist()
    shares = [row["held_max"] / sizes[row["device"]] for row in peaks if row["device"] in sizes]
    return max(shares, default=None)
