"""Thresholds of the rules on a replayed window and on memory, and of functions that are named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from profiler_server.facts.case import Case
from profiler_server.facts.machine import Gain, Replayed, Sighting
from profiler_server.facts.steps import Part
from profiler_server.words.phrases import say_functions
from tests.support import facts as make
from tests.unit.diagnosis.edges.base import Edge, base, named


def seeing(name: str, gain: Gain | None = None, **figures: float) -> Case:
    """Let the window show something; its replay is exact."""
    replay = Replayed(5, 5e6, 5e6, seen={name: Sighting(10.0, 1e6, ("example",), gain, figures)})
    case = make.with_manifest(make.with_device(base(), replay=replay), facts={"cudnn_benchmark": False})
    return make.with_steps(case, phases_ns=dict.fromkeys(case.steps.phases_ns, 0.0))


def holding(peak: float, unfilled: float = 0.9) -> Case:
    case = make.with_device(base(), memory_peak_frac=peak)
    assert case.device.summary is not None
    summary = replace(case.device.summary, utilization_frac=1.0, sm_efficiency_frac=1.0 - unfilled)
    return replace(case, device=replace(case.device, summary=summary))


EDGES: Mapping[str, Edge] = {
    "MOST_ERROR_FRAC": Edge(0.03, lambda x: not Replayed(5, 5e6, 5e6 * (1 + x)).is_valid),
    "DOMINANT_FRAC": Edge(0.5, lambda x: Part("gap", 100, (named(x),)).dominant is not None),
    "NAMED_FRAC": Edge(
        0.15, lambda x: say_functions(Part("gap", 100, (named(0.6), named(x))), "it").count("mine") == 2
    ),
    "RECORDED_FRAC": Edge(0.3, lambda x: make.speaks(seeing("recorded_gradients", share=x), "needless_grad")),
    "SPARE_MEMORY_FRAC": Edge(0.5, lambda x: make.speaks(holding(1.0 - x), "small_batch")),
    "UNFILLED_FRAC": Edge(0.5, lambda x: make.speaks(holding(0.1, x), "small_batch")),
}
