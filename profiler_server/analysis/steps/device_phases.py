"""What the parts of a step took on the device, from the table `device_phases`."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from collector.format.parts import find_files
from collector.format.phases import PHASE_NAMES
from collector.format.run import RankRun
from collector.format.schema.errors import RunError


@dataclass(frozen=True)
class DevicePhases:
    """Mean ns per phase over the steps that were measured, in the order of a step; what was not seen is left out."""

    steps: int
    means_ns: tuple[tuple[str, float], ...]


def summarize_device_phases(rank: RankRun) -> DevicePhases | None:
    """Average the parts over the steps; None where none was measured or the table cannot be read."""
    try:
        if not find_files(rank.folder, "device_phases"):
            return None
        rows = rank.table("device_phases", ("step", "phase", "duration_ns"))
    except RunError:
        return None
    steps = pc.count_distinct(rows["step"]).as_py()
    if not steps:
        return None
    phases = rows["phase"].cast(pa.string())
    sums = {name: pc.sum(rows["duration_ns"].filter(pc.equal(phases, name))).as_py() for name in PHASE_NAMES}
    return DevicePhases(steps, tuple((name, total / steps) for name, total in sums.items() if total))
