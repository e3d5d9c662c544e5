"""A pipeline of the user's own: its stages in the order in which items pass them, and which of them is the limit.

Which stage fills which queue is told by the waits of the stages, each of which names its queue.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from profiler_server.analysis.data.pipeline import Bottleneck, sum_stages
from profiler_server.analysis.results import StageSummary
from profiler_server.format import format_share

BUSY_FRAC = 0.5
"""A stage that works less than this part of its time is not what the others wait for."""
WAIT_FRAC = 0.2


@dataclass(frozen=True)
class OwnStage:
    """One stage of the user's: the queues that it takes from and puts into, as far as it waited for them."""

    summary: StageSummary
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.summary.name


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


def find_own_bottleneck(stages: Sequence[OwnStage]) -> Bottleneck:
    """Name the stage that the others wait for: the busiest, if it works at least half of its time and nothing after
    it holds it up.

    Where all stages wait for room in their output, whoever takes the results is the limit, and no stage is named.
    """
    if not stages:
        return Bottleneck(None, "No stage was recorded.")
    busiest = max(stages, key=lambda stage: stage.summary.busy_frac or 0.0)
    busy = busiest.summary.busy_frac or 0.0
    last = stages[-1].summary
    if busy >= BUSY_FRAC and (busiest.summary.output_wait_frac or 0.0) < WAIT_FRAC:
        return Bottleneck(busiest.name, " ".join(_explain(stages, busiest, busy)))
    if (last.output_wait_frac or 0.0) >= WAIT_FRAC:
        share = format_share(last.output_wait_frac)
        return Bottleneck(None, f"{last.name} waits for its output for {share}: what takes the results is the limit.")
    first = stages[0].summary
    if (first.input_wait_frac or 0.0) >= WAIT_FRAC:
        share = format_share(first.input_wait_frac)
        return Bottleneck(None, f"{first.name} waits for its input for {share}: what feeds the pipeline is the limit.")
    return Bottleneck(None, f"No stage works more than {format_share(busy)} of its time.")


def _explain(stages: Sequence[OwnStage], limit: OwnStage, busy: float) -> list[str]:
    replicas = limit.summary.replicas
    of = f" in each of {replicas} replicas" if replicas > 1 else ""
    said = [f"{limit.name} works {format_share(busy)} of the time{of}."]
    at = stages.index(limit)
    for stage in stages[:at]:
        if (stage.summary.output_wait_frac or 0.0) >= WAIT_FRAC:
            share = format_share(stage.summary.output_wait_frac)
            said.append(f"{stage.name}, before it, waits for room in its output queue for {share}.")
    starved = (stage.summary for stage in stages[at + 1 :] if (stage.summary.input_wait_frac or 0.0) >= WAIT_FRAC)
    said += [f"{row.name}, after it, waits for input for {format_share(row.input_wait_frac)}." for row in starved]
    return said


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
