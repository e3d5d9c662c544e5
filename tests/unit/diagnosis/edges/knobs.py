"""Thresholds of the settings that are worth a trial or a look."""

from __future__ import annotations

from collections.abc import Mapping

from profiler_server.diagnosis.knobs import list_changes
from profiler_server.facts.case import Case
from profiler_server.facts.steps import Kinds
from tests.support import facts as make
from tests.unit.diagnosis.edges.base import Edge, base
from tests.unit.diagnosis.edges.lines import spot, with_lines, work


def _is_tried(case: Case, knob: str) -> bool:
    return any(each.knob == knob for each in list_changes(case))


def _is_look(case: Case) -> bool:
    return bool(make.find(case, "worth_trying"))


def _convolving(share: float) -> Case:
    return make.with_steps(base(), kinds=Kinds(share, has_channels_last=False))


def _computing(share: float) -> Case:
    case = make.with_share(make.with_share(base(), "backward", 0.0), "forward", share)
    return make.with_steps(case, kinds=Kinds())


def _calling(count: float) -> Case:
    case = with_lines(spot(function="Net.forward", work=work()))
    return make.with_steps(case, kinds=Kinds(pointwise_calls=count))


def _looking_up(rows: float) -> Case:
    return make.with_steps(base(), kinds=Kinds(lookups_frac=0.4, rows_frac=rows))


def _making(share: float) -> Case:
    case = make.with_wait(base(), 0.4)
    return make.with_batches(case, share * case.loading.wait_ns)


def _keeping_subnormals(share: float) -> Case:
    noted = {"read": 1_000_000, "subnormal": round(1_000_000 * share)}
    return make.with_manifest(base(), facts={"subnormals": noted})


EDGES: Mapping[str, Edge] = {
    "TRIED_FRAC": Edge(0.03, lambda x: _is_tried(_convolving(x), "channels_last")),
    "COMPUTED_FRAC": Edge(0.10, lambda x: _is_tried(_computing(x), "compile") and _is_tried(_computing(x), "bfloat16")),
    "MANY_POINTWISE": Edge(100, lambda x: _is_look(_calling(x))),
    "FEW_ROWS_FRAC": Edge(0.10, lambda x: not _is_look(_looking_up(x))),
    "SEEN_SUBNORMAL_FRAC": Edge(0.005, lambda x: _is_look(_keeping_subnormals(x))),
    "TINY_WORK_FRAC": Edge(0.5, lambda x: not _is_look(_making(x))),
}
