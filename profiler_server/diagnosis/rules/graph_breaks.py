"""torch.compile has to leave its graph for Python."""

from __future__ import annotations

from profiler_server.diagnosis.wording import OPERATORS_PAGE
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.format import format_number_of


def _judge(case: Case) -> Finding | None:
    breaks = case.steps.compiles.get("graph_break")
    if breaks is None:
        return None
    reason = f": {breaks.reason.rstrip('.')}" if breaks.reason else ""
    where = breaks.function
    if breaks.functions > 1:
        where = f"{format_number_of(breaks.functions, 'function')}, most of them in {breaks.function}"
    return Finding(
        title="Compiled functions break into several graphs",
        measured=f"{format_number_of(breaks.count, 'graph break')} in {where}{reason}.",
        threshold="Any graph break: operators are not fused across it, and Python runs between the graphs.",
        advice="Move what breaks the graph (prints, .item(), calls into other libraries) out of the compiled function.",
        change="torch.compile(model, fullgraph=True)  # raises an error at the line that breaks; for searching",
        fix="one graph",
        evidence=(OPERATORS_PAGE,),
        severity="low",
    )


RULE = Rule("graph_breaks", knob="graph_breaks", effort="code", judge=_judge)
