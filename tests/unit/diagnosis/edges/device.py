"""Thresholds of the rules on the device, on several ranks and on precision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from profiler_server.facts.case import Case
from profiler_server.facts.steps import SampledShare
from tests.support import facts as make
from tests.unit.diagnosis.edges.base import Edge, base, sampled


def copying(share: float, pinned: bool) -> Case:
    return make.with_loader(make.with_share(make.with_device(base()), "h2d", share), pin_memory=pinned)


def doubles(share: float) -> Case:
    counts = {"float64": round(share * 1_000_000), "float32": 1_000_000 - round(share * 1_000_000)}
    return make.with_manifest(base(), facts={"optimizers": [{"name": "SGD", "dtypes": counts}]})


def tracing(least: float) -> Case:
    """A step that is all forward under anomaly detection, which surely takes so much of it."""
    phases = dict.fromkeys(base().steps.phases_ns, 0.0) | {"forward": base().steps.mean_ns}
    case = make.with_manifest(make.with_steps(base(), phases_ns=phases), facts={"anomaly_mode": True})
    return replace(case, stacks=sampled(tracebacks=SampledShare(900, 0.3, least / 0.8, 0.4)))


EDGES: Mapping[str, Edge] = {
    "DISPATCH_FRAC": Edge(0.15, lambda x: make.speaks(make.with_device(base(), dispatch_frac=x), "launch_bound")),
    "DEVICE_IDLE_FRAC": Edge(0.30, lambda x: make.speaks(make.with_device(base(), busy=1 - x), "launch_bound")),
    "LAUNCH_IDLE_FRAC": Edge(
        0.5, lambda x: make.speaks(make.with_device(make.with_wait(base(), 0.0), host_wait=x), "launch_bound")
    ),
    "FULL_PRECISION_FRAC": Edge(
        0.3, lambda x: make.speaks(make.with_device(base(), full_precision_frac=x), "tf32_off")
    ),
    "ANOMALY_GAINS": Edge(1.5, lambda x: make.find(tracing(0.05 * x), "debug_modes").what_if is not None),
    "PAGEABLE_FRAC": Edge(0.05, lambda x: make.speaks(copying(x, False), "pageable_copy")),
    "BLOCKING_FRAC": Edge(0.08, lambda x: make.speaks(copying(x, True), "blocking_copy")),
    "PREPARE_FRAC": Edge(0.10, lambda x: make.speaks(make.with_share(base(), "h2d", x), "serial_copy")),
    "EXPOSED_FRAC": Edge(
        0.10,
        lambda x: make.speaks(
            replace(make.with_share(base(), "communication", x), ranks=replace(base().ranks, world_size=2)),
            "exposed_all_reduce",
        ),
    ),
    "FLOAT64_FRAC": Edge(0.5, lambda x: make.speaks(doubles(x), "float64")),
}
