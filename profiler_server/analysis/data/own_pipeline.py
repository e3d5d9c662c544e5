"""A pipeline of the user's own: its stages in the order in which items pass them.

Which stage fills which queue follows from the waits of the stages, each of which names its queue.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from profiler_server.analysis.data.pipeline import sum_stages
from profiler_server.facts.pipeline import OwnStage


def select_own(stages: pa.Table) -> pa.Table:
    """Return the rows of the user's own stages: those of no DataLoader."""
    return stages.filter(pc.is_null(stages["loader"]))


def summarize_own(own: pa.Table) -> tuple[OwnStage, ...]:
    """Return the user's stages, those first that others take from; of equals the one that began first."""
    if not own.num_rows:
        return ()
    ends = {kind: _find_queues(own, kind) for kind in ("input_wait", "output_wait")}
    found = [
        OwnStage(row, ends["input_wait"].get(row.name, ()), ends["output_wait"].get(row.name, ()))
        for row in sum_stages(own)
    ]
    starts = own.group_by("stage", use_threads=False).aggregate([("start_ns", "min")]).to_pylist()
    began = {row["stage"]: row["start_ns_min"] for row in starts}
    places = _place(found)
    return tuple(sorted(found, key=lambda stage: (places[stage.name], began[stage.name])))


def _find_queues(own: pa.Table, kind: str) -> dict[str, tuple[str, ...]]:
    rows = own.filter(pc.and_(pc.equal(own["kind"].cast(pa.string()), kind), pc.is_valid(own["detail"])))
    pairs = rows.group_by(["stage", "detail"], use_threads=False).aggregate([]).to_pylist()
    found: dict[str, list[str]] = {}
    for pair in pairs:
        found.setdefault(pair["stage"], []).append(pair["detail"])
    return {stage: tuple(sorted(queues)) for stage, queues in found.items()}


def _place(stages: Sequence[OwnStage]) -> dict[str, int]:
    """Return how many stages an item passes before each; a pipeline that feeds back to itself stops somewhere."""
    places = dict.fromkeys((stage.name for stage in stages), 0)
    for _ in stages:
        for stage in stages:
            above = [other for other in stages if other is not stage and set(other.outputs) & set(stage.inputs)]
            places[stage.name] = min(max((places[other.name] + 1 for other in above), default=0), len(stages))
    return places
