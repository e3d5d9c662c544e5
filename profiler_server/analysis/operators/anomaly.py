"""What anomaly detection does in a step, as the detailed steps show it."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from collector.format.parts import find_files
from collector.format.run import RankRun
from profiler_server.facts.steps import AnomalyWork

_NODE = "autograd::engine::evaluate_function: "
_CHECKS = ("aten::isnan", "aten::_is_any_true")


def read_anomaly_work(rank: RankRun) -> AnomalyWork | None:
    """Return what the detailed steps did for anomaly detection; None where no backward was recorded in detail.

    Raises TableBrokenError or NewerSchemaError.
    """
    if not find_files(rank.folder, "operators"):
        return None
    rows = rank.table("operators", ("step", "name", "count", "total_ns"))
    rows = rows.filter(pc.is_valid(rows["step"]))
    steps = pc.count_distinct(rows["step"]).as_py()
    names = rows["name"].cast(pa.string())
    nodes = _sum(rows.filter(pc.starts_with(names, _NODE)), "count")
    if not nodes:
        return None
    checks = _sum(rows.filter(pc.is_in(names, pa.array(_CHECKS))), "total_ns")
    return AnomalyWork(nodes / steps, checks / steps)


def _sum(rows: pa.Table, name: str) -> int:
    return int(pc.sum(rows[name]).as_py() or 0)
