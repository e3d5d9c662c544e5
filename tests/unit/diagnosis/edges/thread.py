"""Thresholds of the rules on what the training thread does beside the model."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from collector.format.schema.manifest import Overhead
from profiler_server.facts.case import Case
from profiler_server.facts.steps import CompileEvents, Held, Interruptions
from tests.support import facts as make
from tests.unit.diagnosis.edges.base import Edge, base, whole
from tests.unit.diagnosis.edges.lines import spot, with_lines


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


def looped(tensors: int, parameters: int, saved_ns: float) -> bool:
    """Say whether an update is told to loop where a change must save so much, and loops over these can take no more."""
    case = make.with_steps(base(), mean_ns=saved_ns / 0.05)
    optimizers = [{"name": "AdamW", "foreach": False, "tensors": tensors, "parameters": parameters}]
    return make.speaks(
        make.with_manifest(make.with_share(case, "optimizer", 0.9), facts={"optimizers": optimizers}), "optimizer_loop"
    )


def outside(time_ns: float, spent: float = 1.0) -> Case:
    """Half of each step is outside of training for so long, in the average `spent` times that."""
    case = make.split_step(make.with_durations(base(), lambda d: np.full(len(d), 2 * time_ns)), tail=0.5)
    phases = dict.fromkeys(case.steps.phases_ns, 0.0) | {"forward": time_ns, "tail": spent * time_ns}
    return make.with_steps(case, phases_ns=phases, regular_phases_ns=phases)


def graded(times: float) -> Case:
    """A step with a fifth of its time in the gap, in a function whose backward takes so many times as long."""
    case = make.split_step(base(), gap=0.2)
    case = make.with_steps(case, phases_ns={**case.steps.phases_ns, "gap": 0.2 * case.steps.mean_ns})
    return with_lines(spot(0.2, phases={"gap": 0.2}, backward_frac=0.2 * times), case=case)


def collected(steps: int) -> Case:
    """A run in which the collections of so many steps take a tenth of all time."""
    rows, kept = len(base().steps.rows), np.flatnonzero(base().steps.selection.kept)
    gc_ns = np.zeros(rows)
    gc_ns[kept[:steps]] = 0.1 * base().steps.mean_ns * len(kept) / steps
    return make.with_rows(base(), gc_ns=gc_ns)


EDGES: Mapping[str, Edge] = {
    "GRADED_FRAC": Edge(0.2, lambda x: not make.speaks(graded(x), "python_gap")),
    "UPDATE_FRAC": Edge(0.10, lambda x: make.speaks(updating(x), "optimizer_loop")),
    "OUTSIDE_FRAC": Edge(0.10, lambda x: make.speaks(make.split_step(base(), tail=x), "python_gap")),
    "CHECKPOINT_FRAC": Edge(0.05, lambda x: make.speaks(saving(x), "checkpoint_stall")),
    "GC_FRAC": Edge(0.05, lambda x: make.speaks(make.with_rows(base(), gc_ns=x * 64e6), "gc_pauses")),
    "MIN_COLLECTED": Edge(3, lambda x: make.speaks(collected(whole(x)), "gc_pauses")),
    "MIN_RECOMPILES": Edge(2, lambda x: make.speaks(recompiled(whole(x), 0.1), "recompiles")),
    "RECOMPILE_FRAC": Edge(0.02, lambda x: make.speaks(recompiled(9, x), "recompiles")),
    "EVALUATION_FRAC": Edge(0.12, lambda x: make.speaks(evaluating(x), "validation_share")),
    "LOOPED_TENSOR_NS": Edge(150_000, lambda x: not looped(1_000, 1, 1_000 * x)),
    "LOOPED_PARAMETER_NS": Edge(12.0, lambda x: not looped(1, 10**9, 1e9 * x)),
    "LEAST_OUTSIDE_SAVED": Edge(0.25, lambda x: make.find(outside(500_000 / x), "python_gap").otherwise is not None),
    "ALIKE_FRAC": Edge(
        0.1, lambda x: "half of the" in make.find(outside(20e6, 1 / (1 + x)), "python_gap").text.measured
    ),
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
