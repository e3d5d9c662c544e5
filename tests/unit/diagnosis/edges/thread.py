"""Thresholds of the rules on what the training thread does beside the model."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from collector.format.schema.manifest import Overhead
from profiler_server.facts.case import Case
from profiler_server.facts.steps import CompileEvents, Held, Interruptions, LoopedPhase, LoopedRows
from tests.support import facts as make
from tests.unit.diagnosis.edges.base import Edge, base, whole


def saving(share: float) -> Case:
    whole = int(base().steps.selection.duration_ns.sum())
    one = np.array([0], np.int64)
    saves = Interruptions(
        (Held("checkpoint", "torch.save"),), one, one, np.array([round(share * whole)], np.int64), one
    )
    return make.with_steps(base(), interruptions=saves)


def evaluating(share: float) -> Case:
    rows = base().steps.rows.slice(0, 1)
    kind = rows.schema.get_field_index("kind")
    whole = int(base().steps.selection.duration_ns.sum())
    rows = make.with_rows(make.with_steps(base(), rows=rows), duration_ns=whole * share / (1 - share)).steps.rows
    evaluation = rows.set_column(kind, "kind", [["eval"]])
    return make.with_steps(base(), other_rows=evaluation)


def recompiled(count: int, share: float) -> Case:
    whole = int(base().steps.selection.duration_ns.sum())
    return make.with_steps(base(), compiles={"recompile": CompileEvents(count, round(share * whole), 1, "f")})


def updating(share: float) -> Case:
    optimizers = {"optimizers": [{"name": "AdamW", "foreach": False, "fused": None}]}
    return make.with_manifest(make.with_share(base(), "optimizer", share), facts=optimizers)


def looping(share: float) -> Case:
    phase = LoopedPhase("forward", share * base().steps.mean_ns, share * base().steps.mean_ns)
    return make.with_steps(base(), looped=LoopedRows(32, 640.0, ("aten::select",), (phase,), True, False))


EDGES: Mapping[str, Edge] = {
    "UPDATE_FRAC": Edge(0.10, lambda x: make.speaks(updating(x), "optimizer_loop")),
    "OUTSIDE_FRAC": Edge(0.10, lambda x: make.speaks(make.split_step(base(), tail=x), "python_gap")),
    "LOOPED_FRAC": Edge(0.20, lambda x: make.speaks(looping(x), "rows_in_loop")),
    "CHECKPOINT_FRAC": Edge(0.05, lambda x: make.speaks(saving(x), "checkpoint_stall")),
    "GC_FRAC": Edge(0.05, lambda x: make.speaks(make.with_rows(base(), gc_ns=x * 64e6), "gc_pauses")),
    "MIN_RECOMPILES": Edge(2, lambda x: make.speaks(recompiled(whole(x), 0.1), "recompiles")),
    "RECOMPILE_FRAC": Edge(0.02, lambda x: make.speaks(recompiled(9, x), "recompiles")),
    "EVALUATION_FRAC": Edge(0.12, lambda x: make.speaks(evaluating(x), "validation_share")),
    "RECORDING_FRAC": Edge(
        0.03, lambda x: make.speaks(make.with_manifest(base(), overhead=Overhead(1e6, x, "")), "collector_overhead")
    ),
    "RECORDING_LARGE_FRAC": Edge(
        0.10,
        lambda x: (
            make.find(make.with_manifest(base(), overhead=Overhead(1e6, x, "")), "collector_overhead").severity == "low"
        ),
    ),
}
