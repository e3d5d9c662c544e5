"""How busy the processors were, and with whose work."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from collector.parts import find_files
from collector.run import RankRun


@dataclass(frozen=True)
class HostLoad:
    """Cores in use on average while steps ran. `others` is what other programs took, never negative."""

    process: float | None
    workers: float
    system: float | None
    others: float


def summarize_host(rank: RankRun, start_ns: int, end_ns: int) -> HostLoad | None:
    """Return the load between two times of the run, None if it was not sampled."""
    if not find_files(rank.folder, "resources"):
        return None
    samples = rank.table("resources", ("start_ns", "source", "metric", "value"))
    inside = pc.and_(
        pc.and_(pc.greater_equal(samples["start_ns"], start_ns), pc.less_equal(samples["start_ns"], end_ns)),
        pc.equal(samples["metric"].cast(pa.string()), "cpu_cores"),
    )
    rows = samples.filter(inside).group_by("source", use_threads=False).aggregate([("value", "mean")]).to_pylist()
    means = {row["source"]: row["value_mean"] for row in rows}
    if not means:
        return None
    process, system = means.get("process"), means.get("system")
    workers = sum(value for source, value in means.items() if source.startswith("worker"))
    others = max(0.0, system - (process or 0.0) - workers) if system is not None else 0.0
    return HostLoad(process, workers, system, others)
